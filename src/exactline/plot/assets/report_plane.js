// What is known of a plane: its polygons, edges and regions, and which of them lies where.
const [corners, areas, offsets, rings, edges, sides, births] = await Promise.all([D.corners, D.areas, D.offsets, D.rings, D.edges, D.sides, D.births].map(unpacked));
const P = areas.length, E = edges.length / 2, classes = D.decisions;
const [rims, between] = classes ? await Promise.all([classes.rings, classes.boundaries].map(unpacked)) : [null, null];
const hidden = new Set();
let style = D.style, mark = -1;
const K = D.stretch; // a unit upwards is drawn so much longer; heights are in such units from here on
const exact = K === 1 ? corners : corners.slice(); // as they were given
if (K !== 1) {
  for (const places of [corners, rims, between]) for (let i = 1; places && i < places.length; i += 2) places[i] *= K;
  for (const at of [D.box, ...D.points.map(p => p.at), ...(classes ? classes.regions.map(r => r.box) : [])])
    for (let i = 1; i < at.length; i += 2) at[i] *= K;
}

// what is drawn where: screen = (plane - middle) * zoom, upwards is positive
const [x0, y0, x1, y1] = D.box;
const view = { x: (x0 + x1) / 2, y: (y0 + y1) / 2, zoom: 1 };
let wide = 1, high = 1, dots = 1, keyed = false; // keyed: the cross in the middle is the pointer
const base = $("base"), cover = $("top"), back = document.createElement("canvas");
const paint = base.getContext("2d"), over = cover.getContext("2d"), ink = back.getContext("2d");
let shown = null; // the view that the finished picture in `back` was drawn for
const sx = x => (x - view.x) * view.zoom + wide / 2, sy = y => high / 2 - (y - view.y) * view.zoom;
const whole = () => 0.94 * Math.min(wide / (x1 - x0), high / (y1 - y0));

// polygons and edges by squares of a grid, so that the pointer finds its polygon at once
const G = Math.max(1, Math.min(512, Math.ceil(Math.sqrt(P))));
const column = x => Math.max(0, Math.min(G - 1, Math.floor((x - x0) / (x1 - x0) * G)));
const line = y => Math.max(0, Math.min(G - 1, Math.floor((y - y0) / (y1 - y0) * G)));
const bounds = new Float64Array(4 * P);
for (let p = 0; p < P; p++) {
  let a = Infinity, b = Infinity, c = -Infinity, d = -Infinity;
  for (let k = offsets[p]; k < offsets[p + 1]; k++) {
    const x = corners[2 * rings[k]], y = corners[2 * rings[k] + 1];
    a = Math.min(a, x); b = Math.min(b, y); c = Math.max(c, x); d = Math.max(d, y);
  }
  bounds.set([a, b, c, d], 4 * p);
}
function packed(count, size, each) { // lists of numbers, one after another: each(give) names a list and a number
  const start = new Int32Array(size + 1);
  for (let i = 0; i < count; i++) each(i, list => start[list + 1]++);
  for (let i = 0; i < size; i++) start[i + 1] += start[i];
  const next = start.slice(), items = new Int32Array(start[size]);
  for (let i = 0; i < count; i++) each(i, list => { items[next[list]++] = i; });
  return { start, items };
}
const squares = packed(P, G * G, (p, give) => {
  const a = column(bounds[4 * p]), c = column(bounds[4 * p + 2]), b = line(bounds[4 * p + 1]), d = line(bounds[4 * p + 3]);
  for (let j = b; j <= d; j++) for (let i = a; i <= c; i++) give(j * G + i);
});
const rim = packed(E, P, (e, give) => { for (const s of [sides[2 * e], sides[2 * e + 1]]) if (s >= 0) give(s); });

function inside(p, x, y) { // how deep, for a convex polygon: negative outside
  let least = Infinity;
  for (let k = offsets[p], n = offsets[p + 1]; k < n; k++) {
    const a = 2 * rings[k], b = 2 * rings[k + 1 < n ? k + 1 : offsets[p]];
    const ux = corners[b] - corners[a], uy = corners[b + 1] - corners[a + 1];
    least = Math.min(least, (ux * (y - corners[a + 1]) - uy * (x - corners[a])) / Math.hypot(ux, uy));
  }
  return least;
}
function polygonAt(x, y) {
  if (x < x0 || x > x1 || y < y0 || y > y1) return -1;
  const s = line(y) * G + column(x);
  let best = -1, depth = -1e-12 * (x1 - x0);
  for (let k = squares.start[s]; k < squares.start[s + 1]; k++) {
    const p = squares.items[k];
    if (x < bounds[4 * p] || y < bounds[4 * p + 1] || x > bounds[4 * p + 2] || y > bounds[4 * p + 3]) continue;
    const d = inside(p, x, y);
    if (d > depth) { best = p; depth = d; }
  }
  return best;
}
function edgeNear(p, x, y) {
  let best = -1, least = Infinity;
  for (let k = rim.start[p]; k < rim.start[p + 1]; k++) {
    const e = rim.items[k], a = 2 * edges[2 * e], b = 2 * edges[2 * e + 1];
    const ux = corners[b] - corners[a], uy = corners[b + 1] - corners[a + 1], n = ux * ux + uy * uy;
    const t = Math.max(0, Math.min(1, n ? ((x - corners[a]) * ux + (y - corners[a + 1]) * uy) / n : 0));
    const d = Math.hypot(corners[a] + t * ux - x, corners[a + 1] + t * uy - y);
    if (d < least) { least = d; best = e; }
  }
  return best;
}
function within(region, x, y) { // a region is crossed an odd number of times by a ray that begins inside
  let odd = false;
  for (const [from, to] of region.rings)
    for (let i = from, j = to - 1; i < to; j = i++) {
      const xi = rims[2 * i], yi = rims[2 * i + 1], xj = rims[2 * j], yj = rims[2 * j + 1];
      if (yi > y !== yj > y && x < (xj - xi) * (y - yi) / (yj - yi) + xi) odd = !odd;
    }
  return odd;
}
function regionAt(x, y) {
  return classes.regions.findIndex(({ box: [a, b, c, d] }, r) => x >= a && y >= b && x <= c && y <= d && within(classes.regions[r], x, y));
}
