// The picture: its parts, the outputs and the axis; only what one can see is touched.
const view = { lo: START, width: STOP - START }; // the range shown; places are reckoned from its start, so that none loses digits
let cursor = (START + STOP) / 2, pointer = null, brushed = null, wide = 1, high = 1, dots = 1, box = null, markers = [], fitted = false, heights = null;
const base = $("base"), cover = $("top"), strip = $("whole");
const pen = base.getContext("2d"), over = cover.getContext("2d"), small = strip.getContext("2d");
const times = []; // how long the last pictures took, in ms
const FONT = "12px system-ui, sans-serif", DASHES = [[], [7, 4], [2, 3]], BAND = 26, AXIS = 38, NARROW = 5;
const sx = alpha => box.left + (alpha - view.lo) / view.width * box.wide;
const alphaAt = x => clamp(view.lo + (x - box.left) / box.wide * view.width, Math.max(START, view.lo), Math.min(STOP, view.lo + view.width));

function layout() {
  const slim = wide < 520, rows = Math.min(nodes.length, slim ? 30 : 60), row = rows ? clamp((slim ? 60 : 96) / rows, 2, 13) : 0;
  const left = curves.length ? slim ? 46 : 66 : 14, right = slim ? 10 : wide > 780 ? 140 : 104, bottom = high - AXIS;
  const ticks = bottom - rows * row, band = bands ? ticks - 6 - BAND : ticks;
  box = { left, right, wide: Math.max(1, wide - left - right), top: 8, low: Math.max(20, bands ? band - 22 : ticks - 8), band, ticks, row, rows, bottom, slim };
  for (const [name, size] of [["--left", left], ["--right", right]]) $("slider").style.setProperty(name, `${size}px`);
}

function draw() {
  const began = performance.now();
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.fillStyle = css("--paper"); pen.fillRect(0, 0, wide, high);
  pen.font = FONT; pen.lineCap = "butt"; pen.lineJoin = "bevel";
  const to = view.lo + view.width, from = last(alphas, view.lo), until = last(alphas, to); // breaks from + 1 ... until are inside
  const count = Math.max(1, Math.round(box.wide * Math.min(dots, 2))), edges = new Int32Array(count + 1);
  if (until - from > 2 * count) // the first break after the start of each column of pixels
    for (let c = 0, i = Math.max(from, 0); c <= count; c++) edges[c] = i = c === count ? until + 1 : last(alphas, view.lo + c / count * view.width, i, until + 1) + 1;
  const columns = until - from > 2 * count ? edges : null;
  drawGrid();
  const scale = drawScale(from, until);
  if (bands) drawBand();
  drawCurves(scale, from, until, columns);
  drawTicks(from, until, columns);
  drawAxis();
  times.push(performance.now() - began);
  if (times.length > 200) times.shift();
}

function drawGrid() {
  pen.strokeStyle = css("--rule"); pen.lineWidth = 1;
  pen.strokeRect(box.left - .5, box.top - .5, box.wide + 1, box.low - box.top + 1);
}
function decisive() { // the outputs that lead or come second at places along the range
  const found = new Set();
  for (let k = 0; k <= 8; k++) {
    const alpha = clamp(view.lo + k / 8 * view.width, START, STOP), j = intervalAt(alpha), { rival } = marginAt(alpha, pieceAt(alpha), j);
    found.add(curves[bands.classes[bands.of[j]].curve]);
    if (rival) found.add(rival);
  }
  return found;
}
function drawScale(from, until) { // heights of values, and the numbers beside them
  const some = fitted && bands ? decisive() : null;
  let low = Infinity, most = -Infinity;
  const take = v => { if (v < low && v > -Infinity) low = v; if (v > most && v < Infinity) most = v; };
  for (const c of curves) {
    if (!c.shown || some && !some.has(c)) continue;
    for (const alpha of [view.lo, view.lo + view.width]) take(valueAt(c.values, clamp(alpha, START, STOP)));
    const inner = extremes(c, from + 1, until + 1);
    take(inner.low); take(inner.high);
  }
  if (!(most >= low)) return null;
  const pad = .06 * (most - low) || Math.max(1, Math.abs(low)) * 1e-3;
  low -= pad; most += pad;
  heights = { low, most };
  const span = most - low, y = v => box.low - clamp((v - low) / span, -1, 2) * (box.low - box.top);
  const { base, ticks } = axisTicks(low, most, Math.max(2, (box.low - box.top) / 48));
  pen.fillStyle = css("--soft"); pen.textAlign = "right"; pen.textBaseline = "middle";
  for (const { share, text } of ticks) {
    const at = box.low - share * (box.low - box.top);
    pen.globalAlpha = .5; pen.fillStyle = css("--rule"); pen.fillRect(box.left, at - .5, box.wide, 1);
    pen.globalAlpha = 1; pen.fillStyle = css("--soft"); pen.fillText(text, box.left - 6, clamp(at, box.top + 6, box.low - 6), box.left - 8);
  }
  if (base !== null) { pen.textAlign = "left"; pen.fillText(`${base} +`, box.left + 6, box.top + 10); }
  return { y };
}

function drawCurves(scale, from, until, columns) {
  if (!scale) return;
  const { y } = scale, tags = [], to = view.lo + view.width;
  pen.save();
  pen.beginPath(); pen.rect(box.left, box.top, box.wide, box.low - box.top); pen.clip();
  const order = [...curves].sort((a, b) => a.leads - b.leads);
  for (const c of order) {
    if (!c.shown) continue;
    const v = c.values, first = valueAt(v, clamp(view.lo, START, STOP)), end = valueAt(v, clamp(to, START, STOP));
    const thick = c.leads || !bands ? 2 : 1.2;
    pen.globalAlpha = c.leads || !bands ? 1 : .75;
    if (columns) { // between the least and the largest value of each column of pixels
      const count = columns.length - 1, step = box.wide / count;
      const lower = new Float64Array(count);
      pen.fillStyle = look(c);
      pen.beginPath();
      for (let k = 0, left = first; k < count; k++) {
        const right = columns[k + 1] > 0 && columns[k + 1] < N ? valueAt(v, view.lo + (k + 1) / count * view.width, columns[k + 1] - 1) : end;
        const inner = extremes(c, columns[k], columns[k + 1]), x = box.left + k * step, upper = y(Math.max(inner.high, left, right)) - thick / 2;
        lower[k] = y(Math.min(inner.low, left, right)) + thick / 2;
        if (k) pen.lineTo(x, upper); else pen.moveTo(x, upper);
        pen.lineTo(x + step, upper);
        left = right;
      }
      for (let k = count - 1; k >= 0; k--) { pen.lineTo(box.left + (k + 1) * step, lower[k]); pen.lineTo(box.left + k * step, lower[k]); }
      pen.fill();
    } else {
      pen.strokeStyle = look(c); pen.lineWidth = thick; pen.setLineDash(DASHES[c.dash]);
      pen.beginPath(); pen.moveTo(box.left, y(first));
      for (let i = from + 1; i <= until; i++) if (Number.isFinite(v[i])) pen.lineTo(sx(alphas[i]), y(v[i]));
      pen.lineTo(box.left + box.wide, y(end));
      pen.stroke();
    }
    if (y(end) >= box.top && y(end) <= box.low) tags.push({ c, at: y(end) });
  }
  pen.restore();
  pen.setLineDash([]); pen.globalAlpha = 1;
  if (box.slim || curves.length < 2) return;
  pen.textAlign = "left"; pen.textBaseline = "middle"; pen.font = FONT;
  const room = Math.floor((box.low - box.top) / 14), some = tags.sort((a, b) => b.c.leads - a.c.leads).slice(0, room).sort((a, b) => a.at - b.at);
  for (let i = 0, least = box.top + 6; i < some.length; i++) least = (some[i].at = Math.max(some[i].at, least)) + 14;
  for (let i = some.length - 1, most = box.low - 5; i >= 0; i--) most = (some[i].at = Math.min(some[i].at, most)) - 14;
  for (const { c, at } of some) { // a piece of the curve, and its name in ink
    const x = box.left + box.wide + 5;
    pen.strokeStyle = look(c); pen.lineWidth = c.leads || !bands ? 3 : 2; pen.setLineDash(DASHES[c.dash]);
    pen.beginPath(); pen.moveTo(x, at); pen.lineTo(x + 16, at); pen.stroke();
    pen.fillStyle = css("--ink"); pen.fillText(shortened(c.name, box.right - 30), x + 21, at);
  }
  pen.setLineDash([]);
  pen.font = FONT;
}
const cuts = new Map();
function shortened(text, room) { // as much of a name as fits; measuring takes long, so what was found is kept
  const key = `${pen.font} ${Math.round(room)} ${text}`;
  if (cuts.size > 2000) cuts.clear();
  if (!cuts.has(key)) {
    const fits = n => pen.measureText(`${text.slice(0, n)}\u2026`).width <= room;
    let low = 1, top = Math.min(text.length, 400);
    while (low < top) { const mid = (low + top + 1) >> 1; if (fits(mid)) low = mid; else top = mid - 1; }
    cuts.set(key, text.length <= 400 && pen.measureText(text).width <= room ? text : `${text.slice(0, low)}\u2026`);
  }
  return cuts.get(key);
}

function drawAxis() {
  const { base, ticks } = axisTicks(view.lo, view.lo + view.width, Math.max(2, box.wide / (box.slim ? 70 : 95)));
  pen.strokeStyle = pen.fillStyle = css("--soft"); pen.textBaseline = "top"; pen.lineWidth = 1;
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

function front() { // the slider's line, the pointer's, and a range that is being chosen
  over.setTransform(dots, 0, 0, dots, 0, 0);
  over.clearRect(0, 0, wide, high);
  const inside = cursor >= view.lo && cursor <= view.lo + view.width, rule = (x, colour, thick, dash) => {
    over.strokeStyle = colour; over.lineWidth = thick; over.setLineDash(dash);
    over.beginPath(); over.moveTo(x, box.top); over.lineTo(x, box.bottom + 3); over.stroke();
  };
  if (pointer) rule(sx(pointer.alpha), css("--soft"), 1, [3, 3]);
  if (inside) rule(sx(cursor), css("--accent"), 1.6, []);
  if (brushed) {
    const [a, b] = brushed.map(x => clamp(x, box.left, box.left + box.wide)).sort((p, q) => p - q);
    over.globalAlpha = .22; over.fillStyle = css("--accent"); over.fillRect(a, box.top, b - a, box.bottom - box.top); over.globalAlpha = 1;
  }
  $("thumb").style.left = `${clamp(sx(cursor), box.left - 4, box.left + box.wide + 4)}px`;
  $("thumb").classList.toggle("away", !inside);
}
