// Shared by all pages: decoding of arrays, elements, light and dark themes, patterns, gestures, downloads, axes.
const $ = id => document.getElementById(id);
const DATA = JSON.parse($("data").textContent);
$("data").remove();

async function decodeArray({ kind, data }) { // the inverse of encode_array() in page.py
  const text = atob(data), compressed = new Uint8Array(text.length);
  for (let i = 0; i < compressed.length; i++) compressed[i] = text.charCodeAt(i);
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const itemBytes = kind === "f8" ? 8 : 4, n = bytes.length / itemBytes, words = new Uint32Array(n * itemBytes / 4);
  const word = (i, at) => (bytes[at * n + i] | bytes[(at + 1) * n + i] << 8 | bytes[(at + 2) * n + i] << 16 | bytes[(at + 3) * n + i] << 24) >>> 0;
  for (let i = 0, low = 0, high = 0; i < n; i++) {
    const sum = low + word(i, 0);
    low = sum >>> 0;
    if (itemBytes === 4) { words[i] = low; continue; }
    high = (high + word(i, 4) + (sum > 0xffffffff ? 1 : 0)) >>> 0;
    words[2 * i] = low; words[2 * i + 1] = high;
  }
  return itemBytes === 8 ? new Float64Array(words.buffer) : new Int32Array(words.buffer);
}

// index of the last number of an ascending array that is at most x; from - 1 where there is none
function lastAtMost(ascending, x, from = 0, to = ascending.length) {
  let low = from, high = to;
  while (low < high) { const mid = (low + high) >> 1; if (ascending[mid] <= x) low = mid + 1; else high = mid; }
  return low - 1;
}
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
// a number in at most six significant digits; showNumber puts all of them into the title
const shortNumber = v => { const text = String(v); return text.length <= 8 || typeof v !== "number" ? text : String(Number(v.toPrecision(6))); };
const showNumber = (cell, v) => { cell.textContent = shortNumber(v); cell.title = v; };
const countNoun = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
const addElement = (tag, text, parent, name) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (name) e.className = name;
  parent?.append(e);
  return e;
};

// light or dark: as the system prefers, until the reader chooses
const root = document.documentElement, system = window.matchMedia("(prefers-color-scheme: dark)");
const dark = () => root.dataset.theme === "dark";
const themeColours = new Map(); // CSS variables of the current theme; reading them from the browser is slow
const themeColour = name => { if (!themeColours.has(name)) themeColours.set(name, getComputedStyle(root).getPropertyValue(name).trim()); return themeColours.get(name); };
function initTheme(onChange) {
  let chosen = false;
  const set = isDark => {
    root.dataset.theme = isDark ? "dark" : "light";
    themeColours.clear();
    $("theme").textContent = isDark ? "light page" : "dark page";
    onChange();
  };
  root.dataset.theme = system.matches ? "dark" : "light";
  system.addEventListener("change", () => { if (!chosen) set(system.matches); });
  $("theme").addEventListener("click", () => { chosen = true; set(!dark()); });
  $("theme").textContent = dark() ? "light page" : "dark page";
}

// patterns, so that classes differ by more than colour
const HATCHES = [
  () => {}, p => { p.moveTo(-2, 10); p.lineTo(10, -2); p.moveTo(-2, 2); p.lineTo(2, -2); p.moveTo(6, 10); p.lineTo(10, 6); },
  p => { p.rect(1, 1, 2, 2); p.rect(5, 5, 2, 2); }, p => { p.moveTo(0, 4); p.lineTo(8, 4); },
  p => { p.moveTo(-2, -2); p.lineTo(10, 10); p.moveTo(-2, 6); p.lineTo(2, 10); p.moveTo(6, -2); p.lineTo(10, 2); },
  p => { p.moveTo(4, 0); p.lineTo(4, 8); }, p => { p.moveTo(0, 0); p.lineTo(8, 8); p.moveTo(8, 0); p.lineTo(0, 8); },
  p => { p.moveTo(0, 4); p.lineTo(8, 4); p.moveTo(4, 0); p.lineTo(4, 8); },
];
const isBright = colour => { const [r, g, b] = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16)); return .299 * r + .587 * g + .114 * b > 140; };
const textColourOn = colour => isBright(colour) ? "#111111" : "#ffffff";
const hatchTiles = new Map();
function patternFill(pen, colour, hatch) { // a fill style for a canvas
  if (!hatch) return colour;
  const key = `${colour} ${hatch}`;
  if (!hatchTiles.has(key)) {
    const tile = document.createElement("canvas"), t = tile.getContext("2d");
    tile.width = tile.height = 8;
    t.fillStyle = colour; t.fillRect(0, 0, 8, 8);
    t.strokeStyle = textColourOn(colour); t.globalAlpha = .38; t.lineWidth = 1.2;
    t.beginPath(); HATCHES[hatch % HATCHES.length](t); t.stroke();
    hatchTiles.set(key, tile);
  }
  return pen.createPattern(hatchTiles.get(key), "repeat");
}
function swatch(parent, colour, hatch) {
  const c = addElement("canvas", undefined, parent, "swatch"), pen = c.getContext("2d");
  c.width = 22; c.height = 14; c.setAttribute("aria-hidden", "true");
  pen.fillStyle = patternFill(pen, colour, hatch); pen.fillRect(0, 0, 22, 14);
  return c;
}

// mouse, pen and touch: one pointer hovers, drags or (with shift) brushes a range, two pinch
function gestures(on, { hover, leave, drag, brush, pinch, tap, wheel }) {
  const down = new Map();
  let downAt = null, moved = 0, brushing = false;
  const fingers = () => { const [a, b] = [...down.values()]; return { x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2, gap: Math.hypot(a[0] - b[0], a[1] - b[1]) }; };
  on.addEventListener("pointerdown", e => {
    if (e.button > 0) return;
    try { on.setPointerCapture(e.pointerId); } catch { /* the pointer is gone already */ }
    down.set(e.pointerId, [e.offsetX, e.offsetY]);
    if (down.size === 1) { downAt = [e.offsetX, e.offsetY]; moved = 0; brushing = !!brush && e.shiftKey; }
    else { moved = Infinity; if (brushing) brush(null); brushing = false; }
  });
  on.addEventListener("pointermove", e => {
    const before = down.get(e.pointerId);
    if (!before) { if (!down.size) hover(e.offsetX, e.offsetY, e.pointerType); return; }
    const old = down.size === 2 ? fingers() : null;
    down.set(e.pointerId, [e.offsetX, e.offsetY]);
    if (old) { const now = fingers(); pinch(old.gap > 0 ? now.gap / old.gap : 1, now.x, now.y, now.x - old.x, now.y - old.y); return; }
    moved = Math.max(moved, Math.hypot(e.offsetX - downAt[0], e.offsetY - downAt[1]));
    if (brushing) brush([downAt[0], e.offsetX], false);
    else if (moved > 3) drag(e.offsetX - before[0], e.offsetY - before[1]);
  });
  const up = completed => e => {
    if (!down.delete(e.pointerId) || down.size) return;
    if (brushing) brush(completed && moved > 3 ? [downAt[0], e.offsetX] : null, true);
    else if (completed && moved <= 3) tap?.(e.offsetX, e.offsetY);
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

// a file made by the page, for the reader to save
function download(blob, name) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(blob); a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}
const fileName = text => text.normalize("NFKD").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|-+$/g, "").slice(0, 60) || "page";
// a quoted name in a .csv; a leading quote keeps spreadsheets from reading it as a formula
const csvCell = text => `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;

// round numbers along an axis; deep in a zoom, offsets from the first number
function axisTicks(low, high, maxTicks) {
  const span = high - low, rough = span / Math.max(maxTicks, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(k => k * power >= rough * .999999);
  if (!(span > 0) || !Number.isFinite(step) || step === 0) return { base: null, ticks: [] };
  const isDeep = Math.max(Math.abs(low), Math.abs(high)) / step > 1e6, first = isDeep ? 0 : Math.ceil(low / step - 1e-9), ticks = [];
  for (let k = first; ; k++) {
    const offset = isDeep ? k * step : k * step - low;
    if (offset > span * (1 + 1e-9)) break;
    const size = Math.abs(k * step), text = k === 0 ? "0" : size < 1e-4 || size >= 1e7 ? Number((k * step).toPrecision(6)).toExponential() : String(Number((k * step).toPrecision(9)));
    ticks.push({ share: offset / span, text: isDeep ? `+${text}` : text });
  }
  return { base: isDeep ? low : null, ticks };
}
