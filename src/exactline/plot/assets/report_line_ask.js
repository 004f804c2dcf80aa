// What one asks: slider, keys, pointers, buttons.
const LEAST = 2 ** -48; // of the numbers at hand, a range is no narrower: sixteen of them across
function show(lo, width) {
  const least = LEAST * Math.max(Math.abs(lo), Math.abs(lo + width), 2 ** -60);
  view.width = clamp(width, Math.min(least, STOP - START), STOP - START);
  view.lo = clamp(lo, START, STOP - view.width);
  redraw();
}
function zoom(factor, x = sx(clamp(cursor, view.lo, view.lo + view.width))) {
  const share = clamp((x - box.left) / box.wide, 0, 1), at = view.lo + share * view.width, width = clamp(view.width / factor, LEAST * Math.abs(at), STOP - START);
  show(at - share * width, width);
}
const pan = dx => show(view.lo - dx / box.wide * view.width, view.width);
function showRange(a, b, pad = 0) { show(a - pad * (b - a), (b - a) * (1 + 2 * pad)); }
function showPiece(alpha = cursor) { const i = pieceAt(alpha); showRange(alphas[i], alphas[i + 1], .15); }
function go(alpha, follow = true) {
  cursor = clamp(alpha, START, STOP);
  if (follow && cursor < view.lo) show(cursor - .1 * view.width, view.width);
  else if (follow && cursor > view.lo + view.width) show(cursor - .9 * view.width, view.width);
  tell();
}
function step(way, pages = 1) { // a little of what is shown, and at least to the next number there is
  const next = cursor + way * pages * view.width / 200;
  go(next !== cursor ? next : cursor + way * 2 ** -52 * Math.max(Math.abs(cursor), 2 ** -60));
}
let wanted = false, later = 0;
function redraw() {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(() => {
    wanted = false;
    draw(); front(); frontWhole();
    const [from, until] = visibleBreaks(), inside = until - from + 1, more = markers.reduce((n, m) => n + m.count, 0);
    $("range").textContent = `shown: alpha ${view.lo} to ${view.lo + view.width}, ${counted(inside, "break")}`
      + (more ? `; ${counted(more, "class interval")} too narrow to see, under ${counted(markers.length, "marker")}` : "");
  });
}

function chips() { // colours follow the page's
  for (const c of curves) c.chip.replaceChildren(swatch(null, look(c), c.hatch));
  for (const node of nodes) node.chip.replaceChildren(swatch(null, look(node), 0));
}
function dress() { chips(); drawWhole(); redraw(); }
function resize() {
  wide = Math.max(1, $("chart").clientWidth); high = Math.max(1, $("chart").clientHeight); dots = window.devicePixelRatio || 1;
  for (const c of [base, cover]) { c.width = Math.round(wide * dots); c.height = Math.round(high * dots); }
  layout(); drawWhole(); redraw(); front();
}

gestures(cover, {
  hover, leave,
  drag: dx => pan(dx),
  brush: (span, done) => {
    brushed = done ? null : span;
    if (done && span) { const [a, b] = span.map(alphaAt).sort((p, q) => p - q); if (b > a) showRange(a, b); }
    front();
  },
  pinch: (factor, x, y, dx) => { // what is under each finger stays there
    const width = Math.min(view.width / factor, STOP - START), at = view.lo + (x - dx - box.left) / box.wide * view.width;
    show(at - (x - box.left) / box.wide * width, width);
  },
  tap: (x, y) => {
    const m = y > box.band - 16 && y < box.band ? markers.find(k => Math.abs(k.x - x) < 7) : null;
    if (m) { showRange(bands.starts[m.from], stopOf(m.to), .5); go((bands.starts[m.from] + stopOf(m.from)) / 2, false); } else go(alphaAt(x));
  },
  wheel: (dx, dy, x, y, e) => { if (e.shiftKey || Math.abs(dx) > Math.abs(dy)) pan(-(dx || dy)); else zoom(Math.exp(-dy / (e.ctrlKey ? 100 : 300)), x); }, // a pinch on a pad comes as a wheel with ctrl
});
const along = x => clamp(START + (x - box.left) / box.wide * (STOP - START), START, STOP);
let grip = null;
gestures(strip, {
  hover: () => {}, leave: () => {}, pinch: (factor, x) => zoom(factor, x), wheel: (dx, dy) => zoom(Math.exp(-dy / 300)), tap: x => { grip = null; go(along(x)); },
  drag: () => {},
});
strip.addEventListener("pointerdown", e => { const at = along(e.offsetX), whole = view.width > .999 * (STOP - START); grip = { at, x: e.offsetX, moves: !whole && at >= view.lo && at <= view.lo + view.width, lo: view.lo }; });
strip.addEventListener("pointermove", e => {
  if (!grip || Math.abs(e.offsetX - grip.x) < 3) return;
  const now = along(e.offsetX);
  if (grip.moves) show(grip.lo + now - grip.at, view.width); else if (now !== grip.at) showRange(Math.min(now, grip.at), Math.max(now, grip.at));
});
for (const kind of ["pointerup", "pointercancel"]) strip.addEventListener(kind, () => { grip = null; });
gestures($("slider"), { hover: () => {}, leave: () => {}, pinch: () => {}, drag: () => {}, wheel: () => false });
for (const kind of ["pointerdown", "pointermove"]) $("slider").addEventListener(kind, e => { if (e.buttons & 1) { $("slider").focus({ preventScroll: true }); go(alphaAt(e.offsetX), false); } });

const onSlider = {
  ArrowLeft: e => e.shiftKey ? go(nextBreak(cursor, -1)) : step(-1), ArrowRight: e => e.shiftKey ? go(nextBreak(cursor, 1)) : step(1),
  ArrowDown: e => e.shiftKey ? go(nextBreak(cursor, -1)) : step(-1), ArrowUp: e => e.shiftKey ? go(nextBreak(cursor, 1)) : step(1),
  Home: () => go(START), End: () => go(STOP),
  PageUp: () => bands ? go(nextBoundary(cursor, 1)) : step(1, 20), PageDown: () => bands ? go(nextBoundary(cursor, -1)) : step(-1, 20),
};
const anywhere = { "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: () => show(START, STOP - START), z: () => showPiece() };
document.addEventListener("keydown", e => {
  const mine = e.target === $("slider") || e.target === document.body;
  const act = e.ctrlKey || e.metaKey || e.altKey || !mine ? null : anywhere[e.key] ?? (e.target === $("slider") || e.key === "ArrowLeft" || e.key === "ArrowRight" ? onSlider[e.key] : null);
  if (act) { e.preventDefault(); act(e); }
});
$("alpha").addEventListener("input", () => {
  const text = $("alpha").value.trim().replace(",", "."), at = Number(text), good = text !== "" && at >= START && at <= STOP;
  $("alpha").dataset.typed = "1"; $("alpha").setAttribute("aria-invalid", !good);
  $("odd").hidden = good; $("odd").textContent = good ? "" : `Give a number from ${START} to ${STOP}.`;
  if (good) go(at);
});
$("alpha").addEventListener("blur", () => { $("alpha").dataset.typed = ""; $("alpha").value = String(cursor); $("alpha").setAttribute("aria-invalid", "false"); $("odd").hidden = true; });
for (const [id, act] of Object.entries({
  in: () => zoom(2), out: () => zoom(.5), all: () => show(START, STOP - START), piece: () => showPiece(),
  fit: () => { fitted = !fitted; $("fit").setAttribute("aria-pressed", fitted); redraw(); },
  before: () => go(nextBreak(cursor, -1)), after: () => go(nextBreak(cursor, 1)), earlier: () => go(nextBoundary(cursor, -1)), later: () => go(nextBoundary(cursor, 1)),
  csv: () => keep(new Blob([csv()], { type: "text/csv" }), `${plainName(D.title)}.csv`), png: () => png(blob => keep(blob, `${plainName(D.title)}.png`)),
})) $(id).addEventListener("click", act);
window.addEventListener("resize", resize);

legends();
inputs.forEach(openInput);
themed(dress);
resize(); chips(); tell();
window.exactline = { go, show, csv, png, draw, view, times, state: () => ({ cursor, lo: view.lo, width: view.width, markers: markers.map(m => ({ x: m.x, count: m.count })), heights, box: { ...box } }), values: () => curves.map(c => c.here) };
root.dataset.ready = "1";
