// Controls: the slider, keys, pointers and buttons.
const MIN_RELATIVE_WIDTH = 2 ** -48; // of a visible range, relative to its alphas: about sixteen float64 numbers
function show(lo, width) {
  const minWidth = MIN_RELATIVE_WIDTH * Math.max(Math.abs(lo), Math.abs(lo + width), 2 ** -60);
  view.width = clamp(width, Math.min(minWidth, END - START), END - START);
  view.lo = clamp(lo, START, END - view.width);
  redraw();
}
function zoom(factor, x = xOf(clamp(cursor, view.lo, view.lo + view.width))) {
  const share = clamp((x - box.left) / box.wide, 0, 1), at = view.lo + share * view.width, width = clamp(view.width / factor, MIN_RELATIVE_WIDTH * Math.abs(at), END - START);
  show(at - share * width, width);
}
const pan = dx => show(view.lo - dx / box.wide * view.width, view.width);
function showRange(a, b, pad = 0) { show(a - pad * (b - a), (b - a) * (1 + 2 * pad)); }
function showPiece(alpha = cursor) { const i = pieceAt(alpha); showRange(alphas[i], alphas[i + 1], .15); }
function setCursor(alpha, follow = true) {
  cursor = clamp(alpha, START, END);
  if (follow && cursor < view.lo) show(cursor - .1 * view.width, view.width);
  else if (follow && cursor > view.lo + view.width) show(cursor - .9 * view.width, view.width);
  update();
}
function step(direction, pages = 1) { // a 200th of the visible range, and at least one float64 number
  const next = cursor + direction * pages * view.width / 200;
  setCursor(next !== cursor ? next : cursor + direction * 2 ** -52 * Math.max(Math.abs(cursor), 2 ** -60));
}
let isRedrawPending = false, announceTimer = 0;
function redraw() {
  if (isRedrawPending) return;
  isRedrawPending = true;
  requestAnimationFrame(() => {
    isRedrawPending = false;
    draw(); drawOverlay(); drawOverviewOverlay();
    const [from, until] = visibleBreaks(), breaks = Math.max(0, Math.min(until, breakCount - 2) - Math.max(from, 1) + 1), narrow = markers.reduce((n, m) => n + m.count, 0);
    $("range").textContent = `shown: alpha ${view.lo} to ${view.lo + view.width}, ${countNoun(breaks, "break")}` // the ends of the line are none
      + (narrow ? `; ${countNoun(narrow, "class interval")} too narrow to see, under ${countNoun(markers.length, "marker")}` : "");
  });
}

function updateSwatches() { // in the colours of the theme
  for (const c of curves) c.chip.replaceChildren(swatch(null, colourOf(c), c.hatch));
  for (const node of nodes) node.chip.replaceChildren(swatch(null, colourOf(node), 0));
}
function applyTheme() { updateSwatches(); drawOverview(); redraw(); }
function resize() {
  wide = Math.max(1, $("chart").clientWidth); high = Math.max(1, $("chart").clientHeight); pixelRatio = window.devicePixelRatio || 1;
  for (const c of [base, overlay]) { c.width = Math.round(wide * pixelRatio); c.height = Math.round(high * pixelRatio); }
  layout(); drawOverview(); redraw(); drawOverlay();
}

gestures(overlay, {
  hover: showTip, leave: hideTip,
  drag: dx => pan(dx),
  brush: (span, done) => {
    brushSpan = done ? null : span;
    if (done && span) { const [a, b] = span.map(alphaAt).sort((p, q) => p - q); if (b > a) showRange(a, b); }
    drawOverlay();
  },
  pinch: (factor, x, y, dx) => { // the alpha under each finger stays there
    const width = Math.min(view.width / factor, END - START), at = view.lo + (x - dx - box.left) / box.wide * view.width;
    show(at - (x - box.left) / box.wide * width, width);
  },
  tap: (x, y) => {
    const m = y > box.band - 16 && y < box.band ? markers.find(k => Math.abs(k.x - x) < 7) : null;
    if (m) { showRange(decisions.starts[m.from], intervalEnd(m.to), .5); setCursor((decisions.starts[m.from] + intervalEnd(m.from)) / 2, false); } else setCursor(alphaAt(x));
  },
  wheel: (dx, dy, x, y, e) => { if (e.shiftKey || Math.abs(dx) > Math.abs(dy)) pan(-(dx || dy)); else zoom(Math.exp(-dy / (e.ctrlKey ? 100 : 300)), x); }, // browsers report a pinch on a touchpad as a wheel with ctrl
});
const overviewAlphaAt = x => clamp(START + (x - box.left) / box.wide * (END - START), START, END);
let overviewDrag = null;
gestures(overview, {
  hover: () => {}, leave: () => {}, pinch: (factor, x) => zoom(factor, x), wheel: (dx, dy) => zoom(Math.exp(-dy / 300)), tap: x => { overviewDrag = null; setCursor(overviewAlphaAt(x)); },
  drag: () => {},
});
overview.addEventListener("pointerdown", e => { const at = overviewAlphaAt(e.offsetX), whole = view.width > .999 * (END - START); overviewDrag = { at, x: e.offsetX, moves: !whole && at >= view.lo && at <= view.lo + view.width, lo: view.lo }; });
overview.addEventListener("pointermove", e => {
  if (!overviewDrag || Math.abs(e.offsetX - overviewDrag.x) < 3) return;
  const now = overviewAlphaAt(e.offsetX);
  if (overviewDrag.moves) show(overviewDrag.lo + now - overviewDrag.at, view.width); else if (now !== overviewDrag.at) showRange(Math.min(now, overviewDrag.at), Math.max(now, overviewDrag.at));
});
for (const kind of ["pointerup", "pointercancel"]) overview.addEventListener(kind, () => { overviewDrag = null; });
gestures($("slider"), { hover: () => {}, leave: () => {}, pinch: () => {}, drag: () => {}, wheel: () => false });
for (const kind of ["pointerdown", "pointermove"]) $("slider").addEventListener(kind, e => { if (e.buttons & 1) { $("slider").focus({ preventScroll: true }); setCursor(alphaAt(e.offsetX), false); } });

const sliderKeys = {
  ArrowLeft: e => e.shiftKey ? setCursor(nextBreak(cursor, -1)) : step(-1), ArrowRight: e => e.shiftKey ? setCursor(nextBreak(cursor, 1)) : step(1),
  ArrowDown: e => e.shiftKey ? setCursor(nextBreak(cursor, -1)) : step(-1), ArrowUp: e => e.shiftKey ? setCursor(nextBreak(cursor, 1)) : step(1),
  Home: () => setCursor(START), End: () => setCursor(END),
  PageUp: () => decisions ? setCursor(nextBoundary(cursor, 1)) : step(1, 20), PageDown: () => decisions ? setCursor(nextBoundary(cursor, -1)) : step(-1, 20),
};
const pageKeys = { "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: () => show(START, END - START), z: () => showPiece() };
document.addEventListener("keydown", e => {
  const isOurs = e.target === $("slider") || e.target === document.body;
  const act = e.ctrlKey || e.metaKey || e.altKey || !isOurs ? null : pageKeys[e.key] ?? (e.target === $("slider") || e.key === "ArrowLeft" || e.key === "ArrowRight" ? sliderKeys[e.key] : null);
  if (act) { e.preventDefault(); act(e); }
});
$("alpha").addEventListener("input", () => {
  const text = $("alpha").value.trim().replace(",", "."), at = Number(text), isValid = text !== "" && at >= START && at <= END;
  $("alpha").dataset.typed = "1"; $("alpha").setAttribute("aria-invalid", !isValid);
  $("alpha-error").hidden = isValid; $("alpha-error").textContent = isValid ? "" : `Give a number from ${START} to ${END}.`;
  if (isValid) setCursor(at);
});
$("alpha").addEventListener("blur", () => { $("alpha").dataset.typed = ""; $("alpha").value = String(cursor); $("alpha").setAttribute("aria-invalid", "false"); $("alpha-error").hidden = true; });
for (const [id, act] of Object.entries({
  in: () => zoom(2), out: () => zoom(.5), all: () => show(START, END - START), piece: () => showPiece(),
  fit: () => { isFitted = !isFitted; $("fit").setAttribute("aria-pressed", isFitted); redraw(); },
  before: () => setCursor(nextBreak(cursor, -1)), after: () => setCursor(nextBreak(cursor, 1)), earlier: () => setCursor(nextBoundary(cursor, -1)), later: () => setCursor(nextBoundary(cursor, 1)),
  csv: () => download(new Blob([csv()], { type: "text/csv" }), `${fileName(DATA.title)}.csv`), png: () => png(blob => download(blob, `${fileName(DATA.title)}.png`)),
})) $(id).addEventListener("click", act);
window.addEventListener("resize", resize);

buildLegends();
inputs.forEach(addInput);
initTheme(applyTheme);
resize(); updateSwatches(); update();
window.exactline = { setCursor, show, csv, png, draw, view, times, state: () => ({ cursor, lo: view.lo, width: view.width, markers: markers.map(m => ({ x: m.x, count: m.count })), valueRange, box: { ...box } }), values: () => curves.map(c => c.here) };
root.dataset.ready = "1";
