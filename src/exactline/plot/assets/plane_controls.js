// Controls: pointers, keys, buttons, legends, and the .csv and .png files.
function buildPage() {
  $("title").textContent = DATA.title;
  $("facts").textContent = DATA.facts;
  overlay.setAttribute("aria-label", `${DATA.title}: ${DATA.facts}`);
  DATA.nodes.forEach((node, n) => {
    const row = addElement("label", undefined, $("nodes")), box = addElement("input", undefined, row);
    box.type = "checkbox"; box.checked = true;
    box.onchange = () => { box.checked ? hiddenNodes.delete(n) : hiddenNodes.add(n); redraw(); };
    node.chip = addElement("span", undefined, row);
    addElement("span", node.name, row); addElement("b", node.count.toLocaleString("en"), row);
  });
  $("layers").hidden = !DATA.nodes.length;
  $("outputs").hidden = !outputs.length;
  for (const o of outputs) {
    const row = addElement("div", undefined, $("values"), "row");
    o.chip = addElement("span", undefined, row, "chip");
    addElement("span", o.name, row); o.cell = addElement("b", "", row);
  }
  inputs.forEach(addInput);
  $("classes").hidden = !classes;
  $("decisions").disabled = !classes;
  if (!classes) return;
  $("which").textContent = classes.title;
  for (const item of classes.classes) {
    const row = addElement("div", undefined, $("legend"));
    row.className = "row";
    item.chip = addElement("span", undefined, row, "chip");
    addElement("span", item.name, row); addElement("b", `${item.share}`, row).title = `area ${item.area}`;
  }
}
function applyTheme() {
  $("regions").setAttribute("aria-pressed", style === "regions");
  $("decisions").setAttribute("aria-pressed", style === "decisions");
  for (const thing of [...DATA.nodes, ...outputs]) thing.chip.replaceChildren(swatch(null, fillOf(thing), 0));
  for (const item of classes ? classes.classes : []) item.chip.replaceChildren(swatch(null, fillOf(item), item.hatch));
  redraw();
}
function resize() {
  const frame = overlay.parentElement.getBoundingClientRect(), first = !drawnView && view.zoom === 1;
  const ratio = view.zoom / fitZoom();
  wide = Math.max(1, frame.width); high = Math.max(1, frame.height); pixelRatio = window.devicePixelRatio || 1;
  MARGIN_LEFT = wide < 520 ? 50 : 62;
  for (const c of [base, overlay, backCanvas]) { c.width = Math.round(wide * pixelRatio); c.height = Math.round(high * pixelRatio); }
  view.zoom = first ? fitZoom() : ratio * fitZoom();
  redraw();
}
function move(dx, dy) { view.x -= dx / view.zoom; view.y += dy / view.zoom; redraw(); }
function zoom(factor, px = middleX(), py = middleY()) {
  const next = Math.max(.2 * fitZoom(), Math.min(1e12 * fitZoom(), view.zoom * factor));
  view.x += (px - middleX()) * (1 / view.zoom - 1 / next);
  view.y -= (py - middleY()) * (1 / view.zoom - 1 / next);
  view.zoom = next;
  redraw();
}
function showAll() { view.x = (x0 + x1) / 2; view.y = (y0 + y1) / 2; view.zoom = fitZoom(); redraw(); }

function csv() { // polygons that are at least partly visible, with their exact corners
  const left = xAt(MARGIN_LEFT), right = xAt(wide), low = yAt(high - MARGIN_BOTTOM), top = yAt(0);
  const lines = ["polygon,area,corners"];
  for (let p = 0; p < polygonCount; p++) {
    if (bounds[4 * p] > right || bounds[4 * p + 2] < left || bounds[4 * p + 1] > top || bounds[4 * p + 3] < low) continue;
    const ring = [];
    for (let i = offsets[p]; i < offsets[p + 1]; i++) ring.push(`${originalCorners[2 * rings[i]]} ${originalCorners[2 * rings[i] + 1]}`);
    lines.push(`${p},${areas[p]},${ring.join("; ")}`);
  }
  return `${lines.join("\n")}\n`;
}
function png(done) {
  const out = document.createElement("canvas"), p = out.getContext("2d");
  out.width = base.width; out.height = base.height;
  p.drawImage(base, 0, 0); p.drawImage(overlay, 0, 0);
  out.toBlob(done, "image/png");
}

const updateAt = (x, y) => update(xAt(x), yAt(y));
const endKeys = () => { $("where").textContent = "under the pointer"; if (usesKeys) { usesKeys = false; drawOverlay(); } };
gestures(overlay, {
  hover: (x, y) => { endKeys(); updateAt(x, y); },
  leave: () => { hovered = -1; drawOverlay(); },
  drag: (dx, dy) => { endKeys(); move(dx, dy); },
  pinch: (factor, x, y, dx, dy) => { endKeys(); move(dx, dy); zoom(factor, x, y); },
  tap: (x, y) => { endKeys(); updateAt(x, y); }, // touch does not hover
  wheel: (dx, dy, x, y, e) => zoom(Math.exp(-dy / (e.ctrlKey ? 100 : 400)), x, y), // browsers report a pinch on a touchpad as a wheel with ctrl
});
document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey || (e.target !== overlay && e.target !== document.body)) return;
  const step = Math.min(wide, high) / 10;
  const act = {
    ArrowLeft: () => move(step, 0), ArrowRight: () => move(-step, 0), ArrowUp: () => move(0, step), ArrowDown: () => move(0, -step),
    "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), 0: showAll,
  }[e.key];
  if (!act) return;
  e.preventDefault();
  usesKeys = true; $("where").textContent = "at the cross in the middle";
  act();
  update(view.x, view.y);
  $("live").textContent = [...$("info").querySelectorAll("dd")].slice(0, 4).map(d => d.textContent).join(", ");
});
$("regions").onclick = () => { style = "regions"; applyTheme(); };
$("decisions").onclick = () => { if (classes) { style = "decisions"; applyTheme(); } };
$("all").onclick = showAll; $("in").onclick = () => zoom(1.6); $("out").onclick = () => zoom(1 / 1.6);
$("csv").onclick = () => download(new Blob([csv()], { type: "text/csv" }), `${fileName(DATA.title)}.csv`);
$("png").onclick = () => png(blob => download(blob, `${fileName(DATA.title)}.png`));
window.addEventListener("resize", resize);
initTheme(applyTheme);
buildPage();
resize();
applyTheme();
update((x0 + x1) / 2, (y0 + y1) / 2); // until the reader points somewhere
$("where").textContent = "in the middle; point to look elsewhere";
window.exactline = { view, timings, csv, png, zoom, move, redraw, idle: () => !isPending, outputs: () => outputs.map(o => o.here), screen: (x, y) => [xOf(x), yOf(y * stretch)] };
root.dataset.ready = "1";
