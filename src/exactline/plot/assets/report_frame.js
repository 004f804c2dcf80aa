// What all pages share: packed arrays, elements, light and dark, patterns, gestures, files to keep.
const $ = id => document.getElementById(id);
const D = JSON.parse($("data").textContent);
$("data").remove();

async function unpacked({ kind, data }) { // the inverse of packed() in report_frame.py
  const text = atob(data), shut = new Uint8Array(text.length);
  for (let i = 0; i < shut.length; i++) shut[i] = text.charCodeAt(i);
  const stream = new Blob([shut]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const each = kind === "f8" ? 8 : 4, n = bytes.length / each, words = new Uint32Array(n * each / 4);
  const word = (i, at) => (bytes[at * n + i] | bytes[(at + 1) * n + i] << 8 | bytes[(at + 2) * n + i] << 16 | bytes[(at + 3) * n + i] << 24) >>> 0;
  for (let i = 0, low = 0, high = 0; i < n; i++) {
    const sum = low + word(i, 0);
    low = sum >>> 0;
    if (each === 4) { words[i] = low; continue; }
    high = (high + word(i, 4) + (sum > 0xffffffff ? 1 : 0)) >>> 0;
    words[2 * i] = low; words[2 * i + 1] = high;
  }
  return each === 8 ? new Float64Array(words.buffer) : new Int32Array(words.buffer);
}

// the last place in a rising array whose number is at most x, or one less than `from`
function last(rising, x, from = 0, to = rising.length) {
  let low = from, high = to;
  while (low < high) { const mid = (low + high) >> 1; if (rising[mid] <= x) low = mid + 1; else high = mid; }
  return low - 1;
}
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
const counted = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
const made = (tag, text, parent, name) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (name) e.className = name;
  parent?.append(e);
  return e;
};

// light and dark: as the system says, until the reader chooses
const root = document.documentElement, system = window.matchMedia("(prefers-color-scheme: dark)");
const dark = () => root.dataset.theme === "dark";
const colours = new Map(); // of the page as it is now: asking the browser takes long
const css = name => { if (!colours.has(name)) colours.set(name, getComputedStyle(root).getPropertyValue(name).trim()); return colours.get(name); };
function themed(changed) {
  let chosen = false;
  const set = now => {
    root.dataset.theme = now ? "dark" : "light";
    colours.clear();
    $("theme").textContent = now ? "light page" : "dark page";
    changed();
  };
  root.dataset.theme = system.matches ? "dark" : "light";
  system.addEventListener("change", () => { if (!chosen) set(system.matches); });
  $("theme").addEventListener("click", () => { chosen = true; set(!dark()); });
  $("theme").textContent = dark() ? "light page" : "dark page";
}

// classes differ by pattern as well as by colour
const STROKES = [
  () => {}, p => { p.moveTo(-2, 10); p.lineTo(10, -2); p.moveTo(-2, 2); p.lineTo(2, -2); p.moveTo(6, 10); p.lineTo(10, 6); },
  p => { p.rect(1, 1, 2, 2); p.rect(5, 5, 2, 2); }, p => { p.moveTo(0, 4); p.lineTo(8, 4); },
  p => { p.moveTo(-2, -2); p.lineTo(10, 10); p.moveTo(-2, 6); p.lineTo(2, 10); p.moveTo(6, -2); p.lineTo(10, 2); },
  p => { p.moveTo(4, 0); p.lineTo(4, 8); }, p => { p.moveTo(0, 0); p.lineTo(8, 8); p.moveTo(8, 0); p.lineTo(0, 8); },
  p => { p.moveTo(0, 4); p.lineTo(8, 4); p.moveTo(4, 0); p.lineTo(4, 8); },
];
const bright = colour => { const [r, g, b] = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16)); return .299 * r + .587 * g + .114 * b > 140; };
const inkOn = colour => bright(colour) ? "#111111" : "#ffffff";
const tiles = new Map();
function fillOf(pen, colour, hatch) { // a fill for a canvas
  if (!hatch) return colour;
  const key = `${colour} ${hatch}`;
  if (!tiles.has(key)) {
    const tile = document.createElement("canvas"), t = tile.getContext("2d");
    tile.width = tile.height = 8;
    t.fillStyle = colour; t.fillRect(0, 0, 8, 8);
    t.strokeStyle = inkOn(colour); t.globalAlpha = .38; t.lineWidth = 1.2;
    t.beginPath(); STROKES[hatch % STROKES.length](t); t.stroke();
    tiles.set(key, tile);
  }
  return pen.createPattern(tiles.get(key), "repeat");
}
function swatch(parent, colour, hatch) {
  const c = made("canvas", undefined, parent, "swatch"), pen = c.getContext("2d");
  c.width = 22; c.height = 14; c.setAttribute("aria-hidden", "true");
  pen.fillStyle = fillOf(pen, colour, hatch); pen.fillRect(0, 0, 22, 14);
  return c;
}

// pointers of every kind: one moves, drags or (with shift) brushes, two pinch
function gestures(on, { hover, leave, drag, brush, pinch, tap, wheel }) {
  const down = new Map();
  let from = null, far = 0, brushing = false;
  const ends = () => { const [a, b] = [...down.values()]; return { x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2, gap: Math.hypot(a[0] - b[0], a[1] - b[1]) }; };
  on.addEventListener("pointerdown", e => {
    if (e.button > 0) return;
    try { on.setPointerCapture(e.pointerId); } catch { /* a pointer that is gone already */ }
    down.set(e.pointerId, [e.offsetX, e.offsetY]);
    if (down.size === 1) { from = [e.offsetX, e.offsetY]; far = 0; brushing = !!brush && e.shiftKey; }
    else { far = Infinity; if (brushing) brush(null); brushing = false; }
  });
  on.addEventListener("pointermove", e => {
    const before = down.get(e.pointerId);
    if (!before) { if (!down.size) hover(e.offsetX, e.offsetY, e.pointerType); return; }
    const old = down.size === 2 ? ends() : null;
    down.set(e.pointerId, [e.offsetX, e.offsetY]);
    if (old) { const now = ends(); pinch(old.gap > 0 ? now.gap / old.gap : 1, now.x, now.y, now.x - old.x, now.y - old.y); return; }
    far = Math.max(far, Math.hypot(e.offsetX - from[0], e.offsetY - from[1]));
    if (brushing) brush([from[0], e.offsetX], false);
    else if (far > 3) drag(e.offsetX - before[0], e.offsetY - before[1]);
  });
  const up = kept => e => {
    if (!down.delete(e.pointerId) || down.size) return;
    if (brushing) brush(kept && far > 3 ? [from[0], e.offsetX] : null, true);
    else if (kept && far <= 3) tap?.(e.offsetX, e.offsetY);
    brushing = false;
  };
  on.addEventListener("pointerup", up(true));
  on.addEventListener("pointercancel", up(false));
  on.addEventListener("pointerleave", () => { if (!down.size) leave(); });
  on.addEventListener("wheel", e => {
    const size = e.deltaMode ? 30 : 1;
    if (wheel(clamp(e.deltaX * size, -200, 200), clamp(e.deltaY * size, -200, 200), e.offsetX, e.offsetY, e) !== false) e.preventDefault();
  }, { passive: false });
}

// files that the reader keeps: made here, sent nowhere
function keep(blob, name) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(blob); a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}
const plainName = text => text.normalize("NFKD").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|-+$/g, "").slice(0, 60) || "page";
// a name in a .csv; what a table would take for a formula is kept from being one
const cell = text => `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;

// numbers along an axis: round steps, and where the digits would not fit, steps from the first one
function axisTicks(low, high, most) {
  const span = high - low, rough = span / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(k => k * power >= rough * .999999);
  if (!(span > 0) || !Number.isFinite(step) || step === 0) return { base: null, ticks: [] };
  const deep = Math.max(Math.abs(low), Math.abs(high)) / step > 1e6, first = deep ? 0 : Math.ceil(low / step - 1e-9), ticks = [];
  for (let k = first; ; k++) {
    const off = deep ? k * step : k * step - low;
    if (off > span * (1 + 1e-9)) break;
    const sized = Math.abs(k * step), text = k === 0 ? "0" : sized < 1e-4 || sized >= 1e7 ? Number((k * step).toPrecision(6)).toExponential() : String(Number((k * step).toPrecision(9)));
    ticks.push({ share: off / span, text: deep ? `+${text}` : text });
  }
  return { base: deep ? low : null, ticks };
}
