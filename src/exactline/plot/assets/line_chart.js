// The chart: its layout, the curves of the outputs and the axes; work is proportional to what is visible.
const view = { lo: START, width: END - START }; // the visible range; positions are relative to its start, so that no digits are lost
let cursor = (START + END) / 2, pointer = null, brushSpan = null, wide = 1, high = 1, pixelRatio = 1, box = null, markers = [], isFitted = false, valueRange = null;
const base = $("base"), overlay = $("overlay"), overview = $("whole");
const pen = base.getContext("2d"), overlayPen = overlay.getContext("2d"), overviewPen = overview.getContext("2d");
const times = []; // duration of recent calls of draw(), in ms
const FONT = "12px system-ui, sans-serif", DASHES = [[], [7, 4], [2, 3]], BAND_HEIGHT = 26, AXIS_HEIGHT = 38, MIN_VISIBLE_WIDTH = 5; // pixels
const xOf = alpha => box.left + (alpha - view.lo) / view.width * box.wide;
const alphaAt = x => clamp(view.lo + (x - box.left) / box.wide * view.width, Math.max(START, view.lo), Math.min(END, view.lo + view.width));

function layout() {
  const slim = wide < 520, rows = Math.min(nodes.length, slim ? 30 : 60), row = rows ? clamp((slim ? 60 : 96) / rows, 2, 13) : 0;
  const left = curves.length ? slim ? 46 : 66 : 14, right = slim ? 10 : wide > 780 ? 140 : 104, bottom = high - AXIS_HEIGHT;
  const ticks = bottom - rows * row, band = decisions ? ticks - 6 - BAND_HEIGHT : ticks;
  box = { left, right, wide: Math.max(1, wide - left - right), top: 8, low: Math.max(20, decisions ? band - 22 : ticks - 8), band, ticks, row, rows, bottom, slim };
  for (const [name, size] of [["--left", left], ["--right", right]]) $("slider").style.setProperty(name, `${size}px`);
}

function draw() {
  const began = performance.now();
  pen.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
  pen.fillStyle = themeColour("--paper"); pen.fillRect(0, 0, wide, high);
  pen.font = FONT; pen.lineCap = "butt"; pen.lineJoin = "bevel";
  const to = view.lo + view.width, from = lastAtMost(alphas, view.lo), until = lastAtMost(alphas, to); // breaks from + 1 to until are visible
  const count = Math.max(1, Math.round(box.wide * Math.min(pixelRatio, 2))), edges = new Int32Array(count + 1);
  if (until - from > 2 * count) // the first break in each column of pixels
    for (let c = 0, i = Math.max(from, 0); c <= count; c++) edges[c] = i = c === count ? until + 1 : lastAtMost(alphas, view.lo + c / count * view.width, i, until + 1) + 1;
  const columns = until - from > 2 * count ? edges : null;
  drawGrid();
  const scale = drawValueAxis(from, until);
  if (decisions) drawBand();
  drawCurves(scale, from, until, columns);
  drawTicks(from, until, columns);
  drawAxis();
  times.push(performance.now() - began);
  if (times.length > 200) times.shift();
}

function drawGrid() {
  pen.strokeStyle = themeColour("--rule"); pen.lineWidth = 1;
  pen.strokeRect(box.left - .5, box.top - .5, box.wide + 1, box.low - box.top + 1);
}
function decisiveCurves() { // the outputs that lead or come second at samples of the visible range
  const found = new Set();
  for (let k = 0; k <= 8; k++) {
    const alpha = clamp(view.lo + k / 8 * view.width, START, END), j = intervalAt(alpha), { runnerUp } = marginAt(alpha, pieceAt(alpha), j);
    found.add(curves[decisions.classes[decisions.class_of[j]].curve]);
    if (runnerUp) found.add(runnerUp);
  }
  return found;
}
function drawValueAxis(from, until) { // the range of visible values, and the numbers beside the chart
  const fitted = isFitted && decisions ? decisiveCurves() : null;
  let low = Infinity, most = -Infinity;
  const take = v => { if (v < low && v > -Infinity) low = v; if (v > most && v < Infinity) most = v; };
  for (const c of curves) {
    if (!c.shown || fitted && !fitted.has(c)) continue;
    for (const alpha of [view.lo, view.lo + view.width]) take(valueAt(c.values, clamp(alpha, START, END)));
    const inner = extremes(c, from + 1, until + 1);
    take(inner.low); take(inner.high);
  }
  if (!(most >= low)) return null;
  const pad = .06 * (most - low) || Math.max(1, Math.abs(low)) * 1e-3;
  low -= pad; most += pad;
  valueRange = { low, most };
  const span = most - low, y = v => box.low - clamp((v - low) / span, -1, 2) * (box.low - box.top);
  const { base, ticks } = axisTicks(low, most, Math.max(2, (box.low - box.top) / 48));
  pen.fillStyle = themeColour("--soft"); pen.textAlign = "right"; pen.textBaseline = "middle";
  for (const { share, text } of ticks) {
    const at = box.low - share * (box.low - box.top);
    pen.globalAlpha = .5; pen.fillStyle = themeColour("--rule"); pen.fillRect(box.left, at - .5, box.wide, 1);
    pen.globalAlpha = 1; pen.fillStyle = themeColour("--soft"); pen.fillText(text, box.left - 6, clamp(at, box.top + 6, box.low - 6), box.left - 8);
  }
  if (base !== null) { pen.textAlign = "left"; pen.fillText(`${base} +`, box.left + 6, box.top + 10); }
  return { y };
}

function drawCurves(scale, from, until, columns) {
  if (!scale) return;
  const { y } = scale, curveLabels = [], to = view.lo + view.width;
  pen.save();
  pen.beginPath(); pen.rect(box.left, box.top, box.wide, box.low - box.top); pen.clip();
  const order = [...curves].sort((a, b) => a.leads - b.leads);
  for (const c of order) {
    if (!c.shown) continue;
    const v = c.values, first = valueAt(v, clamp(view.lo, START, END)), end = valueAt(v, clamp(to, START, END));
    const thick = c.leads || !decisions ? 2 : 1.2;
    pen.globalAlpha = c.leads || !decisions ? 1 : .75;
    if (columns) { // fill from the smallest to the largest value in each column of pixels
      const count = columns.length - 1, step = box.wide / count;
      const upper = new Float64Array(count), lower = new Float64Array(count), [on, off] = DASHES[c.dash].length ? DASHES[c.dash] : [Infinity, 0];
      for (let k = 0, left = first; k < count; k++) {
        const right = columns[k + 1] > 0 && columns[k + 1] < breakCount ? valueAt(v, view.lo + (k + 1) / count * view.width, columns[k + 1] - 1) : end;
        const inner = extremes(c, columns[k], columns[k + 1]);
        upper[k] = y(Math.max(inner.high, left, right)) - thick / 2;
        lower[k] = y(Math.min(inner.low, left, right)) + thick / 2;
        left = right;
      }
      pen.fillStyle = colourOf(c);
      pen.beginPath();
      for (let from = 0; from < count; from += Math.max(1, Math.round((on + off) / step))) { // one dash after the other; a solid curve is one dash
        const to = Math.min(count, from + Math.max(1, Math.round(on / step)));
        pen.moveTo(box.left + from * step, upper[from]);
        for (let k = from; k < to; k++) { pen.lineTo(box.left + k * step, upper[k]); pen.lineTo(box.left + (k + 1) * step, upper[k]); }
        for (let k = to - 1; k >= from; k--) { pen.lineTo(box.left + (k + 1) * step, lower[k]); pen.lineTo(box.left + k * step, lower[k]); }
        pen.closePath();
      }
      pen.fill();
    } else {
      pen.strokeStyle = colourOf(c); pen.lineWidth = thick; pen.setLineDash(DASHES[c.dash]);
      pen.beginPath(); pen.moveTo(box.left, y(first));
      for (let i = from + 1; i <= until; i++) if (Number.isFinite(v[i])) pen.lineTo(xOf(alphas[i]), y(v[i]));
      pen.lineTo(box.left + box.wide, y(end));
      pen.stroke();
    }
    if (y(end) >= box.top && y(end) <= box.low) curveLabels.push({ c, at: y(end) });
  }
  pen.restore();
  pen.setLineDash([]); pen.globalAlpha = 1;
  if (box.slim || curves.length < 2) return;
  pen.textAlign = "left"; pen.textBaseline = "middle"; pen.font = FONT;
  const room = Math.floor((box.low - box.top) / 14), shownLabels = curveLabels.sort((a, b) => b.c.leads - a.c.leads).slice(0, room).sort((a, b) => a.at - b.at);
  for (let i = 0, least = box.top + 6; i < shownLabels.length; i++) least = (shownLabels[i].at = Math.max(shownLabels[i].at, least)) + 14;
  for (let i = shownLabels.length - 1, most = box.low - 5; i >= 0; i--) most = (shownLabels[i].at = Math.min(shownLabels[i].at, most)) - 14;
  for (const { c, at } of shownLabels) { // a sample of the curve, and its name
    const x = box.left + box.wide + 5;
    pen.strokeStyle = colourOf(c); pen.lineWidth = c.leads || !decisions ? 3 : 2; pen.setLineDash(DASHES[c.dash]);
    pen.beginPath(); pen.moveTo(x, at); pen.lineTo(x + 16, at); pen.stroke();
    pen.fillStyle = themeColour("--ink"); pen.fillText(shorten(c.name, box.right - 30), x + 21, at);
  }
  pen.setLineDash([]);
  pen.font = FONT;
}
const shortNames = new Map();
function shorten(text, room) { // as much of a name as fits; measuring text is slow, so results are cached
  const key = `${pen.font} ${Math.round(room)} ${text}`;
  if (shortNames.size > 2000) shortNames.clear();
  if (!shortNames.has(key)) {
    const fits = n => pen.measureText(`${text.slice(0, n)}\u2026`).width <= room;
    let low = 1, top = Math.min(text.length, 400);
    while (low < top) { const mid = (low + top + 1) >> 1; if (fits(mid)) low = mid; else top = mid - 1; }
    shortNames.set(key, text.length <= 400 && pen.measureText(text).width <= room ? text : `${text.slice(0, low)}\u2026`);
  }
  return shortNames.get(key);
}

function drawAxis() {
  const { base, ticks } = axisTicks(view.lo, view.lo + view.width, Math.max(2, box.wide / (box.slim ? 70 : 95)));
  pen.strokeStyle = pen.fillStyle = themeColour("--soft"); pen.textBaseline = "top"; pen.lineWidth = 1;
  pen.fillRect(box.left, box.bottom + 3, box.wide, 1);
  for (const { share, text } of ticks) {
    const x = box.left + share * box.wide;
    pen.fillRect(x - .5, box.bottom + 3, 1, 4);
    pen.textAlign = x > box.left + box.wide - 14 ? "right" : x < box.left + 14 && base !== null ? "left" : "center";
    pen.fillText(text, x, box.bottom + 8);
  }
  pen.textAlign = "center";
  pen.fillText(base === null ? "alpha" : `alpha = ${base} + ...`, box.left + box.wide / 2, box.bottom + 22);
}

function drawOverlay() { // the lines of slider and pointer, and the range that is being selected
  overlayPen.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
  overlayPen.clearRect(0, 0, wide, high);
  const inside = cursor >= view.lo && cursor <= view.lo + view.width, rule = (x, colour, thick, dash) => {
    overlayPen.strokeStyle = colour; overlayPen.lineWidth = thick; overlayPen.setLineDash(dash);
    overlayPen.beginPath(); overlayPen.moveTo(x, box.top); overlayPen.lineTo(x, box.bottom + 3); overlayPen.stroke();
  };
  if (pointer) rule(xOf(pointer.alpha), themeColour("--soft"), 1, [3, 3]);
  if (inside) rule(xOf(cursor), themeColour("--accent"), 1.6, []);
  if (brushSpan) {
    const [a, b] = brushSpan.map(x => clamp(x, box.left, box.left + box.wide)).sort((p, q) => p - q);
    overlayPen.globalAlpha = .22; overlayPen.fillStyle = themeColour("--accent"); overlayPen.fillRect(a, box.top, b - a, box.bottom - box.top); overlayPen.globalAlpha = 1;
  }
  $("thumb").style.left = `${clamp(xOf(cursor), box.left - 4, box.left + box.wide + 4)}px`;
  $("thumb").classList.toggle("away", !inside);
}
