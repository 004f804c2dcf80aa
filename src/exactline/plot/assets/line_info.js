// Values at the slider and under the pointer, legends, the table of intervals, and the .csv and .png files.
function fillInfo(list, alpha, brief) { // class, margin, piece and breaks at an alpha
  list.replaceChildren();
  const row = (name, value) => { addElement("dt", name, list); addElement("dd", value, list); };
  const piece = pieceAt(alpha), near = nearestBreak(alpha);
  if (brief) row("alpha", String(alpha));
  if (decisions) {
    const band = intervalAt(alpha), { margin, runnerUp } = marginAt(alpha, piece, band);
    row("class", decisions.classes[decisions.class_of[band]].name);
    row("margin", `${DATA.has_all_margins ? "" : "at most "}${margin}${runnerUp ? ` over ${runnerUp.name}` : ""}`);
    if (!brief) row("interval", `alpha ${decisions.starts[band]} to ${intervalEnd(band)}`);
  }
  row("piece", `${piece} (of 0 to ${breakCount - 2})${ambiguous[piece] ? `, ${countNoun(ambiguous[piece], "unit")} ambiguous` : ""}`);
  if (brief) row("nearest break", `${alphas[near]}: ${originText(near)}`);
  else {
    row("from", `${alphas[piece]}: ${originText(piece)}`);
    row("to", `${alphas[piece + 1]}: ${originText(piece + 1)}`);
  }
}
function update() {
  const piece = pieceAt(cursor), field = $("alpha"), slider = $("slider");
  fillInfo($("info"), cursor, false);
  if (document.activeElement !== field || field.dataset.typed !== "1") field.value = String(cursor);
  for (const c of curves) c.cell.textContent = String(c.here = valueAt(c.values, cursor, piece));
  showInputs(cursor);
  const band = decisions ? decisions.classes[decisions.class_of[intervalAt(cursor)]] : null;
  const text = `alpha ${cursor}${band ? `, class ${band.name}` : ""}, piece ${piece} of 0 to ${breakCount - 2}`;
  for (const [name, value] of [["min", START], ["max", END], ["now", cursor], ["text", text]]) slider.setAttribute(`aria-value${name}`, value);
  if (decisions) curves.forEach((c, k) => c.row.classList.toggle("leads", decisions.classes[decisions.class_of[intervalAt(cursor)]].curve === k));
  drawOverlay(); drawOverviewOverlay();
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => { $("live").textContent = band ? `${text}, margin ${marginAt(cursor, piece, intervalAt(cursor)).margin.toPrecision(6)}` : text; }, 400);
}

function showTip(x, y) {
  if (x < box.left || x > box.left + box.wide) return hideTip();
  const alpha = alphaAt(x), tip = $("tip"), marker = y > box.band - 16 && y < box.band ? markers.find(m => Math.abs(m.x - x) < 7) : null;
  pointer = { alpha };
  tip.replaceChildren();
  if (marker) {
    addElement("div", `${countNoun(marker.count, "narrow interval")}; click to see`, tip);
    const list = addElement("dl", undefined, tip);
    for (let j = marker.from, k = 0; j <= marker.to && k < 5; j++, k++) { addElement("dt", decisions.classes[decisions.class_of[j]].name, list); addElement("dd", `${decisions.starts[j]}, width ${intervalEnd(j) - decisions.starts[j]}`, list); }
  } else fillInfo(addElement("dl", undefined, tip), alpha, true);
  tip.hidden = false;
  const tipWidth = tip.offsetWidth + 16;
  tip.style.left = `${clamp(x + 14 + tipWidth > wide ? x - tipWidth : x + 14, 0, Math.max(0, wide - tipWidth))}px`;
  tip.style.top = `${clamp(y > high / 2 ? y - tip.offsetHeight - 12 : y + 14, 0, Math.max(0, high - tip.offsetHeight - 4))}px`;
  drawOverlay();
}
function hideTip() { pointer = null; $("tip").hidden = true; drawOverlay(); }

function visibleBreaks() { const from = lastAtMost(alphas, view.lo); return [from >= 0 && alphas[from] === view.lo ? from : from + 1, lastAtMost(alphas, view.lo + view.width)]; }
function csv() { // the breaks in the visible range, and its two ends where they are not breaks
  const [from, until] = visibleBreaks(), edge = view.lo + view.width;
  const lines = [["alpha", "kind", "piece", "node", "unit", "count", ...(decisions ? ["class"] : []), ...curves.map(c => csvCell(c.name))].join(",")];
  const add = (alpha, kind, i) => {
    const piece = pieceAt(alpha), origin = i >= 0 && originNode[i] >= 0 ? [csvCell(nodeById.get(originNode[i]).name), originUnit[i], originCount[i]] : ["", "", ""];
    const values = curves.map(c => i >= 0 ? c.values[i] : valueAt(c.values, alpha, piece));
    lines.push([alpha, kind, piece, ...origin, ...(decisions ? [csvCell(decisions.classes[decisions.class_of[intervalAt(alpha)]].name)] : []), ...values].join(","));
  };
  if (alphas[from] !== view.lo || from > until) add(view.lo, "edge", -1);
  for (let i = from; i <= until; i++) add(alphas[i], "break", i);
  if (alphas[until] !== edge && edge <= END) add(edge, "edge", -1);
  return `${lines.join("\n")}\n`;
}
function png(done) { // the chart with its title and range
  const out = document.createElement("canvas"), p = out.getContext("2d"), head = 46 * pixelRatio;
  out.width = base.width; out.height = base.height + head;
  p.fillStyle = themeColour("--paper"); p.fillRect(0, 0, out.width, out.height);
  p.drawImage(base, 0, head); p.drawImage(overlay, 0, head);
  p.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
  p.fillStyle = themeColour("--ink"); p.font = "600 15px system-ui, sans-serif"; p.fillText(DATA.title, 12, 19, wide - 24);
  p.fillStyle = themeColour("--soft"); p.font = FONT; p.fillText($("range").textContent, 12, 37, wide - 24);
  out.toBlob(done, "image/png");
}

function buildLegends() {
  $("title").textContent = DATA.title; $("facts").textContent = DATA.facts; $("notes").textContent = DATA.notes.join(" ");
  overlay.setAttribute("aria-label", `Outputs, classes and breaks along alpha. ${DATA.facts}`);
  $("outputs").hidden = !curves.length; $("layers").hidden = !nodes.length; $("jumps").hidden = $("bands").hidden = $("fit").hidden = !decisions;
  if (decisions) $("outputtitle").textContent = `outputs; the ${decisions.order === "max" ? "largest" : "smallest"} decides`;
  const addToggle = (thing, parent, name, more) => {
    const row = addElement("label", undefined, parent), tick = addElement("input", undefined, row);
    tick.type = "checkbox"; tick.checked = true;
    tick.onchange = () => { thing.shown = tick.checked; redraw(); };
    thing.chip = addElement("span", undefined, row);
    addElement("span", name, row);
    thing.cell = addElement("b", more, row); thing.row = row;
  };
  for (const c of curves) { addToggle(c, $("curves"), c.name, ""); c.cell.dataset.output = c.output; }
  for (const node of nodes) addToggle(node, $("nodes"), node.name, node.count.toLocaleString("en"));
  if (!decisions) return;
  const listed = decisions.margins.length;
  $("bandsum").textContent = `${countNoun(decisions.starts.length, "class interval")}: ` + decisions.classes.slice(0, 12).map(c => `${c.name} (${c.share})`).join(", ") + (decisions.classes.length > 12 ? ", ..." : "");
  for (let j = 0; j < listed; j++) {
    const row = addElement("tr", undefined, $("intervals")), kind = decisions.classes[decisions.class_of[j]];
    const start = decisions.starts[j], end = intervalEnd(j), digits = clamp(2 + Math.ceil(-Math.log10(end - start)), 6, 17); // that tell the ends apart
    for (const alpha of [start, end]) addElement("td", String(Number(alpha.toPrecision(digits))), row).title = alpha;
    addElement("td", kind.name, row);
    showNumber(addElement("td", "", row), decisions.margins[j]);
    const button = addElement("button", "show", addElement("td", undefined, row));
    button.type = "button"; button.setAttribute("aria-label", `show interval ${j}, class ${kind.name}`);
    button.onclick = () => { showRange(decisions.starts[j], intervalEnd(j), .3); setCursor((decisions.starts[j] + intervalEnd(j)) / 2, false); };
  }
  if (listed < decisions.starts.length) { const row = addElement("tr", undefined, $("intervals")); addElement("td", `${(decisions.starts.length - listed).toLocaleString("en")} more: zoom to see them`, row).colSpan = 5; }
}
