// What one asks and is told: pointers, keys, buttons, legends, files.
function tell(x, y) {
  const told = $("told");
  told.replaceChildren();
  const row = (name, value) => { made("dt", name, told); made("dd", value, told); };
  row("at", `${x.toPrecision(7)}, ${(y / K).toPrecision(7)}`);
  const p = polygonAt(x, y);
  if (p !== mark) { mark = p; front(); }
  if (p < 0) return row("polygon", "none: outside");
  row("polygon", `${p}, ${offsets[p + 1] - offsets[p]} corners`);
  row("area", String(areas[p]));
  const r = classes ? regionAt(x, y) : -1;
  if (r >= 0) { row("class", classes.regions[r].name); row("its region", `area ${classes.regions[r].area}`); }
  const e = edgeNear(p, x, y);
  if (e < 0) return;
  const more = births[3 * e + 2] > 1 ? `, one of ${births[3 * e + 2]}` : "";
  row("nearest edge", births[3 * e] < 0 ? "outline" : `${D.names[births[3 * e]]}, unit ${births[3 * e + 1]}${more}`);
}

function fill() {
  $("title").textContent = D.title;
  $("facts").textContent = D.facts;
  cover.setAttribute("aria-label", `${D.title}: ${D.facts}`);
  D.nodes.forEach((node, n) => {
    const row = made("label", undefined, $("nodes")), box = made("input", undefined, row);
    box.type = "checkbox"; box.checked = true;
    box.onchange = () => { box.checked ? hidden.delete(n) : hidden.add(n); redraw(); };
    node.chip = made("span", undefined, row);
    made("span", node.name, row); made("b", node.count.toLocaleString("en"), row);
  });
  $("layers").hidden = !D.nodes.length;
  $("classes").hidden = !classes;
  $("decisions").disabled = !classes;
  if (!classes) return;
  $("which").textContent = classes.title;
  for (const found of classes.classes) {
    const row = made("div", undefined, $("legend"));
    row.className = "row";
    swatch(row, found.color, found.hatch);
    made("span", found.name, row); made("b", `${found.share}`, row).title = `area ${found.area}`;
  }
}
function dress() {
  $("regions").setAttribute("aria-pressed", style === "regions");
  $("decisions").setAttribute("aria-pressed", style === "decisions");
  for (const node of D.nodes) node.chip.replaceChildren(swatch(null, node[dark() ? "dark" : "light"], 0));
  redraw();
}
function resize() {
  const place = cover.parentElement.getBoundingClientRect(), first = !shown && view.zoom === 1;
  const ratio = view.zoom / whole();
  wide = Math.max(1, place.width); high = Math.max(1, place.height); dots = window.devicePixelRatio || 1;
  for (const c of [base, cover, back]) { c.width = Math.round(wide * dots); c.height = Math.round(high * dots); }
  view.zoom = first ? whole() : ratio * whole();
  redraw();
}
function move(dx, dy) { view.x -= dx / view.zoom; view.y += dy / view.zoom; redraw(); }
function zoom(factor, px = wide / 2, py = high / 2) {
  const next = Math.max(.2 * whole(), Math.min(1e12 * whole(), view.zoom * factor));
  view.x += (px - wide / 2) * (1 / view.zoom - 1 / next);
  view.y -= (py - high / 2) * (1 / view.zoom - 1 / next);
  view.zoom = next;
  redraw();
}
function all() { view.x = (x0 + x1) / 2; view.y = (y0 + y1) / 2; view.zoom = whole(); redraw(); }

function csv() { // polygons that are shown, at least in part, with their corners as they are
  const half = 1 / view.zoom, left = view.x - wide * half / 2, right = view.x + wide * half / 2, low = view.y - high * half / 2, top = view.y + high * half / 2;
  const lines = ["polygon,area,corners"];
  for (let p = 0; p < P; p++) {
    if (bounds[4 * p] > right || bounds[4 * p + 2] < left || bounds[4 * p + 1] > top || bounds[4 * p + 3] < low) continue;
    const ring = [];
    for (let i = offsets[p]; i < offsets[p + 1]; i++) ring.push(`${exact[2 * rings[i]]} ${exact[2 * rings[i] + 1]}`);
    lines.push(`${p},${areas[p]},${ring.join("; ")}`);
  }
  return `${lines.join("\n")}\n`;
}
function png(done) {
  const out = document.createElement("canvas"), p = out.getContext("2d");
  out.width = base.width; out.height = base.height;
  p.drawImage(base, 0, 0); p.drawImage(cover, 0, 0);
  out.toBlob(done, "image/png");
}

const here = (x, y) => tell(view.x + (x - wide / 2) / view.zoom, view.y - (y - high / 2) / view.zoom);
const byHand = () => { if (keyed) { keyed = false; $("where").textContent = "under the pointer"; front(); } };
gestures(cover, {
  hover: (x, y) => { byHand(); here(x, y); },
  leave: () => { mark = -1; front(); },
  drag: (dx, dy) => { byHand(); move(dx, dy); },
  pinch: (factor, x, y, dx, dy) => { byHand(); move(dx, dy); zoom(factor, x, y); },
  tap: (x, y) => { byHand(); here(x, y); }, // a finger does not hover
  wheel: (dx, dy, x, y, e) => zoom(Math.exp(-dy / (e.ctrlKey ? 100 : 400)), x, y), // a pinch on a pad comes as a wheel with ctrl
});
document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey || (e.target !== cover && e.target !== document.body)) return;
  const step = Math.min(wide, high) / 10;
  const act = {
    ArrowLeft: () => move(step, 0), ArrowRight: () => move(-step, 0), ArrowUp: () => move(0, step), ArrowDown: () => move(0, -step),
    "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), 0: all,
  }[e.key];
  if (!act) return;
  e.preventDefault();
  keyed = true; $("where").textContent = "at the cross in the middle";
  act();
  tell(view.x, view.y);
  $("live").textContent = [...$("told").querySelectorAll("dd")].slice(0, 4).map(d => d.textContent).join(", ");
});
$("regions").onclick = () => { style = "regions"; dress(); };
$("decisions").onclick = () => { if (classes) { style = "decisions"; dress(); } };
$("all").onclick = all; $("in").onclick = () => zoom(1.6); $("out").onclick = () => zoom(1 / 1.6);
$("csv").onclick = () => keep(new Blob([csv()], { type: "text/csv" }), `${plainName(D.title)}.csv`);
$("png").onclick = () => png(blob => keep(blob, `${plainName(D.title)}.png`));
window.addEventListener("resize", resize);
themed(dress);
fill();
made("dd", "point at the plane, or use the keys", $("told"));
resize();
dress();
window.exactline = { view, took, csv, png, zoom, move, redraw, idle: () => !due, screen: (x, y) => [sx(x), sy(y * K)] };
root.dataset.ready = "1";
