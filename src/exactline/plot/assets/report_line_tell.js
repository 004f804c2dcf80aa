// What one is told: at the slider, under the pointer, in legends and tables, and in files to keep.
function rows(list, alpha, brief) { // what is known at an alpha
  list.replaceChildren();
  const row = (name, value, key) => { made("dt", name, list); const d = made("dd", value, list); if (key) d.dataset.told = key; };
  const piece = pieceAt(alpha), near = nearestBreak(alpha);
  if (brief) row("alpha", String(alpha), "alpha");
  if (bands) {
    const band = intervalAt(alpha), { margin, rival } = marginAt(alpha, piece, band);
    row("class", bands.classes[bands.of[band]].name, "class");
    row("margin", `${D.sure ? "" : "at most "}${margin}${rival ? ` over ${rival.name}` : ""}`, "margin");
    if (!brief) row("decided", `alpha ${bands.starts[band]} to ${stopOf(band)}`, "band");
  }
  row("piece", `${piece} (of 0 to ${N - 2})${doubts[piece] ? `, ${counted(doubts[piece], "unit")} unresolved` : ""}`, "piece");
  if (brief) row("nearest break", `${alphas[near]}: ${birthText(near)}`, "born");
  else {
    row("from", `${alphas[piece]}: ${birthText(piece)}`, "from");
    row("to", `${alphas[piece + 1]}: ${birthText(piece + 1)}`, "to");
  }
}
function tell() {
  const piece = pieceAt(cursor), field = $("alpha"), slider = $("slider");
  rows($("told"), cursor, false);
  if (document.activeElement !== field || field.dataset.typed !== "1") field.value = String(cursor);
  for (const c of curves) c.cell.textContent = String(c.here = valueAt(c.values, cursor, piece));
  showInputs(cursor);
  const band = bands ? bands.classes[bands.of[intervalAt(cursor)]] : null;
  const text = `alpha ${cursor}${band ? `, class ${band.name}` : ""}, piece ${piece} of 0 to ${N - 2}`;
  for (const [name, value] of [["min", START], ["max", STOP], ["now", cursor], ["text", text]]) slider.setAttribute(`aria-value${name}`, value);
  if (bands) curves.forEach((c, k) => c.row.classList.toggle("leads", bands.classes[bands.of[intervalAt(cursor)]].curve === k));
  front(); frontWhole();
  clearTimeout(later);
  later = setTimeout(() => { $("live").textContent = band ? `${text}, margin ${marginAt(cursor, piece, intervalAt(cursor)).margin.toPrecision(6)}` : text; }, 400);
}

function hover(x, y) {
  if (x < box.left || x > box.left + box.wide) return leave();
  const alpha = alphaAt(x), tip = $("tip"), marker = y > box.band - 16 && y < box.band ? markers.find(m => Math.abs(m.x - x) < 7) : null;
  pointer = { alpha };
  tip.replaceChildren();
  if (marker) {
    made("div", `${counted(marker.count, "narrow interval")}; click to see`, tip);
    const list = made("dl", undefined, tip);
    for (let j = marker.from, k = 0; j <= marker.to && k < 5; j++, k++) { made("dt", bands.classes[bands.of[j]].name, list); made("dd", `${bands.starts[j]}, width ${stopOf(j) - bands.starts[j]}`, list); }
  } else rows(made("dl", undefined, tip), alpha, true);
  tip.hidden = false;
  const free = tip.offsetWidth + 16;
  tip.style.left = `${clamp(x + 14 + free > wide ? x - free : x + 14, 0, Math.max(0, wide - free))}px`;
  tip.style.top = `${clamp(y > high / 2 ? y - tip.offsetHeight - 12 : y + 14, 0, Math.max(0, high - tip.offsetHeight - 4))}px`;
  front();
}
function leave() { pointer = null; $("tip").hidden = true; front(); }

function visibleBreaks() { const from = last(alphas, view.lo); return [from >= 0 && alphas[from] === view.lo ? from : from + 1, last(alphas, view.lo + view.width)]; }
function csv() { // what is shown, whole: its breaks, and its two edges where they are none
  const [from, until] = visibleBreaks(), edge = view.lo + view.width;
  const lines = [["alpha", "kind", "piece", "node", "unit", "count", ...(bands ? ["class"] : []), ...curves.map(c => cell(c.name))].join(",")];
  const add = (alpha, kind, i) => {
    const piece = pieceAt(alpha), birth = i >= 0 && bornBy[i] >= 0 ? [cell(nodeOf.get(bornBy[i]).name), unitOf[i], tieOf[i]] : ["", "", ""];
    const values = curves.map(c => i >= 0 ? c.values[i] : valueAt(c.values, alpha, piece));
    lines.push([alpha, kind, piece, ...birth, ...(bands ? [cell(bands.classes[bands.of[intervalAt(alpha)]].name)] : []), ...values].join(","));
  };
  if (alphas[from] !== view.lo || from > until) add(view.lo, "edge", -1);
  for (let i = from; i <= until; i++) add(alphas[i], "break", i);
  if (alphas[until] !== edge && edge <= STOP) add(edge, "edge", -1);
  return `${lines.join("\n")}\n`;
}
function png(done) { // the picture with its title and the classes by name
  const out = document.createElement("canvas"), p = out.getContext("2d"), head = 46 * dots;
  out.width = base.width; out.height = base.height + head;
  p.fillStyle = css("--paper"); p.fillRect(0, 0, out.width, out.height);
  p.drawImage(base, 0, head); p.drawImage(cover, 0, head);
  p.setTransform(dots, 0, 0, dots, 0, 0);
  p.fillStyle = css("--ink"); p.font = "600 15px system-ui, sans-serif"; p.fillText(D.title, 12, 19, wide - 24);
  p.fillStyle = css("--soft"); p.font = FONT; p.fillText($("range").textContent, 12, 37, wide - 24);
  out.toBlob(done, "image/png");
}

function legends() {
  $("title").textContent = D.title; $("facts").textContent = D.facts; $("notes").textContent = D.notes.join(" ");
  cover.setAttribute("aria-label", `Outputs, classes and breaks along alpha. ${D.facts}`);
  $("outputs").hidden = !curves.length; $("layers").hidden = !nodes.length; $("jumps").hidden = $("bands").hidden = $("fit").hidden = !bands;
  if (bands) $("outputtitle").textContent = `outputs; the ${bands.order === "max" ? "largest" : "smallest"} decides`;
  const toggled = (thing, parent, name, more) => {
    const row = made("label", undefined, parent), tick = made("input", undefined, row);
    tick.type = "checkbox"; tick.checked = true;
    tick.onchange = () => { thing.shown = tick.checked; redraw(); };
    thing.chip = made("span", undefined, row);
    made("span", name, row);
    thing.cell = made("b", more, row); thing.row = row;
  };
  for (const c of curves) { toggled(c, $("curves"), c.name, ""); c.cell.dataset.output = c.output; }
  for (const node of nodes) toggled(node, $("nodes"), node.name, node.count.toLocaleString("en"));
  if (!bands) return;
  const some = bands.margins.length;
  $("bandsum").textContent = `${counted(bands.starts.length, "class interval")}: ` + bands.classes.slice(0, 12).map(c => `${c.name} (${c.share})`).join(", ") + (bands.classes.length > 12 ? ", ..." : "");
  for (let j = 0; j < some; j++) {
    const row = made("tr", undefined, $("intervals")), kind = bands.classes[bands.of[j]];
    for (const text of [bands.starts[j], stopOf(j), kind.name, bands.margins[j]]) made("td", String(text), row);
    const button = made("button", "show", made("td", undefined, row));
    button.type = "button"; button.setAttribute("aria-label", `show interval ${j}, class ${kind.name}`);
    button.onclick = () => { showRange(bands.starts[j], stopOf(j), .3); go((bands.starts[j] + stopOf(j)) / 2, false); };
  }
  if (some < bands.starts.length) { const row = made("tr", undefined, $("intervals")); made("td", `${(bands.starts.length - some).toLocaleString("en")} more: zoom to see them`, row).colSpan = 5; }
}
