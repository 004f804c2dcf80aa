// The plane: its polygons, edges and regions, the view of it, and which polygon, edge or region is at a point.
const [corners, areas, offsets, rings, edges, sides, origins] = await Promise.all([DATA.corners, DATA.areas, DATA.offsets, DATA.rings, DATA.edges, DATA.sides, DATA.origins].map(decodeArray));
const polygonCount = areas.length, edgeCount = edges.length / 2, classes = DATA.decisions;
const [regionCorners, boundaries] = classes ? await Promise.all([classes.rings, classes.boundaries].map(decodeArray)) : [null, null];
const hiddenNodes = new Set();
let style = DATA.style, hovered = -1;
const stretch = DATA.stretch; // the scale of the vertical axis over that of the horizontal; all y coordinates are multiplied by it below
const originalCorners = stretch === 1 ? corners : corners.slice(); // before they are stretched
if (stretch !== 1) {
  for (const points of [corners, regionCorners, boundaries]) for (let i = 1; points && i < points.length; i += 2) points[i] *= stretch;
  for (const at of [DATA.box, ...DATA.points.map(p => p.at), ...(classes ? classes.regions.map(r => r.box) : [])])
    for (let i = 1; i < at.length; i += 2) at[i] *= stretch;
}

// the view: screen = (plane - middle) * zoom, with y upwards
const [x0, y0, x1, y1] = DATA.box;
const view = { x: (x0 + x1) / 2, y: (y0 + y1) / 2, zoom: 1 };
let wide = 1, high = 1, pixelRatio = 1, usesKeys = false; // with keys, the cross in the middle is the pointer
const base = $("base"), overlay = $("overlay"), backCanvas = document.createElement("canvas");
const basePen = base.getContext("2d"), overlayPen = overlay.getContext("2d"), backPen = backCanvas.getContext("2d");
let drawnView = null; // the view of the last finished picture
let MARGIN_LEFT = 62; // pixels for the axes
const MARGIN_BOTTOM = 40;
const middleX = () => (wide + MARGIN_LEFT) / 2, middleY = () => (high - MARGIN_BOTTOM) / 2;
const xOf = x => (x - view.x) * view.zoom + middleX(), yOf = y => middleY() - (y - view.y) * view.zoom;
const xAt = px => view.x + (px - middleX()) / view.zoom, yAt = py => view.y - (py - middleY()) / view.zoom;
const fitZoom = () => 0.94 * Math.min(Math.max(1, wide - MARGIN_LEFT) / (x1 - x0), Math.max(1, high - MARGIN_BOTTOM) / (y1 - y0));
const fillOf = thing => thing[dark() ? "dark" : "light"];

// polygons by square of a grid, so that the one under the pointer is found quickly
const gridSize = Math.max(1, Math.min(512, Math.ceil(Math.sqrt(polygonCount))));
const gridColumn = x => Math.max(0, Math.min(gridSize - 1, Math.floor((x - x0) / (x1 - x0) * gridSize)));
const gridRow = y => Math.max(0, Math.min(gridSize - 1, Math.floor((y - y0) / (y1 - y0) * gridSize)));
const bounds = new Float64Array(4 * polygonCount);
for (let p = 0; p < polygonCount; p++) {
  let a = Infinity, b = Infinity, c = -Infinity, d = -Infinity;
  for (let k = offsets[p]; k < offsets[p + 1]; k++) {
    const x = corners[2 * rings[k]], y = corners[2 * rings[k] + 1];
    a = Math.min(a, x); b = Math.min(b, y); c = Math.max(c, x); d = Math.max(d, y);
  }
  bounds.set([a, b, c, d], 4 * p);
}
function bucketize(count, size, visit) { // lists of items in one array: visit(item, add) calls add(list) for each list that holds the item
  const start = new Int32Array(size + 1);
  for (let i = 0; i < count; i++) visit(i, list => start[list + 1]++);
  for (let i = 0; i < size; i++) start[i + 1] += start[i];
  const next = start.slice(), items = new Int32Array(start[size]);
  for (let i = 0; i < count; i++) visit(i, list => { items[next[list]++] = i; });
  return { start, items };
}
const gridPolygons = bucketize(polygonCount, gridSize * gridSize, (p, add) => {
  const a = gridColumn(bounds[4 * p]), c = gridColumn(bounds[4 * p + 2]), b = gridRow(bounds[4 * p + 1]), d = gridRow(bounds[4 * p + 3]);
  for (let j = b; j <= d; j++) for (let i = a; i <= c; i++) add(j * gridSize + i);
});
const polygonEdges = bucketize(edgeCount, polygonCount, (e, add) => { for (const s of [sides[2 * e], sides[2 * e + 1]]) if (s >= 0) add(s); });

function depthInside(p, x, y) { // distance to the nearest edge of a convex polygon, negative outside
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
  const s = gridRow(y) * gridSize + gridColumn(x);
  let best = -1, depth = -1e-12 * (x1 - x0);
  for (let k = gridPolygons.start[s]; k < gridPolygons.start[s + 1]; k++) {
    const p = gridPolygons.items[k];
    if (x < bounds[4 * p] || y < bounds[4 * p + 1] || x > bounds[4 * p + 2] || y > bounds[4 * p + 3]) continue;
    const d = depthInside(p, x, y);
    if (d > depth) { best = p; depth = d; }
  }
  return best;
}
function edgeNear(p, x, y) {
  let best = -1, least = Infinity;
  for (let k = polygonEdges.start[p]; k < polygonEdges.start[p + 1]; k++) {
    const e = polygonEdges.items[k], a = 2 * edges[2 * e], b = 2 * edges[2 * e + 1];
    const ux = corners[b] - corners[a], uy = corners[b + 1] - corners[a + 1], n = ux * ux + uy * uy;
    const t = Math.max(0, Math.min(1, n ? ((x - corners[a]) * ux + (y - corners[a + 1]) * uy) / n : 0));
    const d = Math.hypot(corners[a] + t * ux - x, corners[a + 1] + t * uy - y);
    if (d < least) { least = d; best = e; }
  }
  return best;
}
function isInRegion(region, x, y) { // a ray from inside a region crosses its boundary an odd number of times
  let isInside = false;
  for (const [from, to] of region.rings)
    for (let i = from, j = to - 1; i < to; j = i++) {
      const xi = regionCorners[2 * i], yi = regionCorners[2 * i + 1], xj = regionCorners[2 * j], yj = regionCorners[2 * j + 1];
      if (yi > y !== yj > y && x < (xj - xi) * (y - yi) / (yj - yi) + xi) isInside = !isInside;
    }
  return isInside;
}
function regionAt(x, y) {
  return classes.regions.findIndex(({ box: [a, b, c, d] }, r) => x >= a && y >= b && x <= c && y <= d && isInRegion(classes.regions[r], x, y));
}
