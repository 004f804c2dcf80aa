// The chart: drawn in small steps of a few milliseconds on a hidden canvas, and shown when it is finished.
const timings = { all: 0, slices: [], shows: [] }; // in ms: the last whole picture, its slices, and moving the finished picture
const ITEMS_PER_STEP = 4000;
function* drawSteps() {
  const left = xAt(MARGIN_LEFT), right = xAt(wide), low = yAt(high - MARGIN_BOTTOM), top = yAt(0);
  backPen.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
  backPen.fillStyle = themeColour("--paper"); backPen.fillRect(0, 0, wide, high);
  backPen.lineJoin = backPen.lineCap = "round";
  if (style === "regions") {
    const tints = dark() ? DATA.dark : DATA.light;
    for (let from = 0; from < polygonCount; from += ITEMS_PER_STEP) {
      const paths = tints.map(() => new Path2D());
      for (let p = from; p < Math.min(polygonCount, from + ITEMS_PER_STEP); p++) {
        if (bounds[4 * p] > right || bounds[4 * p + 2] < left || bounds[4 * p + 1] > top || bounds[4 * p + 3] < low) continue;
        if ((bounds[4 * p + 2] - bounds[4 * p]) * view.zoom < .4 && (bounds[4 * p + 3] - bounds[4 * p + 1]) * view.zoom < .4) continue;
        const path = paths[p % tints.length];
        for (let k = offsets[p]; k < offsets[p + 1]; k++) {
          const c = 2 * rings[k], x = xOf(corners[c]), y = yOf(corners[c + 1]);
          if (k === offsets[p]) path.moveTo(x, y); else path.lineTo(x, y);
        }
        path.closePath();
      }
      paths.forEach((path, i) => { backPen.fillStyle = tints[i]; backPen.fill(path); });
      yield;
    }
  } else {
    for (let r = 0; r < classes.regions.length; r++) {
      const region = classes.regions[r], path = new Path2D();
      for (const [from, to] of region.rings) {
        for (let i = from; i < to; i++) {
          const x = xOf(regionCorners[2 * i]), y = yOf(regionCorners[2 * i + 1]);
          if (i === from) path.moveTo(x, y); else path.lineTo(x, y);
        }
        path.closePath();
      }
      backPen.fillStyle = patternFill(backPen, fillOf(region), region.hatch);
      backPen.fill(path, "evenodd");
      if (r % 50 === 49) yield;
    }
  }
  const isFaint = style === "decisions";
  const density = Math.min(1, Math.max(.25, view.zoom / fitZoom() * 60 / Math.sqrt(polygonCount)));
  for (let n = DATA.nodes.length - 1; n >= -1; n--) {
    if (n >= 0 && hiddenNodes.has(n)) continue;
    const node = n < 0 ? -1 : DATA.nodes[n].node;
    backPen.strokeStyle = n < 0 ? themeColour("--ink") : isFaint ? themeColour("--ink") : DATA.nodes[n][dark() ? "dark" : "light"];
    backPen.globalAlpha = n >= 0 && isFaint ? .16 : 1;
    backPen.lineWidth = n < 0 ? 1.4 : Math.max(.3, (1.8 - 1.0 * n / Math.max(1, DATA.nodes.length - 1)) * (isFaint ? .5 : 1) * density);
    for (let from = 0; from < edgeCount; from += ITEMS_PER_STEP) {
      let isEmpty = true;
      backPen.beginPath();
      for (let e = from; e < Math.min(edgeCount, from + ITEMS_PER_STEP); e++) {
        if (origins[3 * e] !== node) continue;
        const a = 2 * edges[2 * e], b = 2 * edges[2 * e + 1];
        const xa = corners[a], ya = corners[a + 1], xb = corners[b], yb = corners[b + 1];
        if (Math.max(xa, xb) < left || Math.min(xa, xb) > right || Math.max(ya, yb) < low || Math.min(ya, yb) > top) continue;
        if (Math.abs(xa - xb) * view.zoom < .3 && Math.abs(ya - yb) * view.zoom < .3) continue;
        backPen.moveTo(xOf(xa), yOf(ya)); backPen.lineTo(xOf(xb), yOf(yb)); isEmpty = false;
      }
      if (!isEmpty) { backPen.stroke(); yield; }
    }
  }
  backPen.globalAlpha = 1;
  if (isFaint) {
    backPen.strokeStyle = themeColour("--ink"); backPen.lineWidth = 1.8;
    for (let from = 0; from < boundaries.length; from += 4 * ITEMS_PER_STEP) {
      backPen.beginPath();
      for (let k = from; k < Math.min(boundaries.length, from + 4 * ITEMS_PER_STEP); k += 4) {
        backPen.moveTo(xOf(boundaries[k]), yOf(boundaries[k + 1])); backPen.lineTo(xOf(boundaries[k + 2]), yOf(boundaries[k + 3]));
      }
      backPen.stroke();
      yield;
    }
    drawNames();
  }
}
function labelPosition(region) { // a point well inside a region for its name: the deepest of a grid of points; cached
  if (region.labelPosition !== undefined) return region.labelPosition;
  const [a, b, c, d] = region.box;
  let best = null, deepest = 0;
  for (let i = 1; i < 10; i++) for (let j = 1; j < 10; j++) {
    const x = a + (c - a) * i / 10, y = b + (d - b) * j / 10;
    let depth = 0;
    while (depth < 5 && [[1, 0], [-1, 0], [0, 1], [0, -1]].every(([u, v]) => isInRegion(region, x + u * (depth + 1) * (c - a) / 20, y + v * (depth + 1) * (d - b) / 20))) depth++;
    if (depth > deepest && isInRegion(region, x, y)) { deepest = depth; best = { x, y, room: 2 * depth * (c - a) / 20 }; }
  }
  return region.labelPosition = best;
}
function drawNames() { // names of the regions that are large enough
  backPen.font = "600 13px system-ui, sans-serif"; backPen.textAlign = "center"; backPen.textBaseline = "middle";
  for (const region of classes.regions) {
    if ((region.box[2] - region.box[0]) * view.zoom < 60 || (region.box[3] - region.box[1]) * view.zoom < 30) continue;
    const at = labelPosition(region), room = backPen.measureText(region.name).width;
    if (!at || room + 6 > at.room * view.zoom) continue;
    backPen.fillStyle = fillOf(region); backPen.globalAlpha = .85; backPen.fillRect(xOf(at.x) - room / 2 - 4, yOf(at.y) - 10, room + 8, 20); backPen.globalAlpha = 1;
    backPen.fillStyle = textColourOn(fillOf(region)); backPen.fillText(region.name, xOf(at.x), yOf(at.y));
  }
}
let current = null, timer = 0, isPending = true;
function redraw() { // shortly; a call before the picture is finished starts it again
  clearTimeout(timer);
  isPending = true;
  current = null;
  timer = setTimeout(() => { current = { steps: drawSteps(), view: { ...view }, began: performance.now() }; requestAnimationFrame(runSteps); }, drawnView ? 70 : 0);
  requestAnimationFrame(show);
}
let finishedCanvas = null;
function runSteps() {
  const drawing = current, began = performance.now(), until = began + 12;
  if (!drawing) return;
  while (performance.now() < until)
    if (drawing.steps.next().done) {
      current = null; isPending = false;
      finishedCanvas ??= document.createElement("canvas");
      finishedCanvas.width = backCanvas.width; finishedCanvas.height = backCanvas.height;
      finishedCanvas.getContext("2d").drawImage(backCanvas, 0, 0);
      drawnView = drawing.view;
      timings.all = performance.now() - drawing.began;
      return show();
    }
  timings.slices.push(performance.now() - began);
  requestAnimationFrame(runSteps);
}
function show() { // the finished picture, moved and scaled to the current view
  const began = performance.now();
  basePen.setTransform(1, 0, 0, 1, 0, 0);
  basePen.fillStyle = themeColour("--paper"); basePen.fillRect(0, 0, base.width, base.height);
  if (drawnView) {
    const s = view.zoom / drawnView.zoom;
    basePen.setTransform(s, 0, 0, s, pixelRatio * (middleX() * (1 - s) + (drawnView.x - view.x) * view.zoom), pixelRatio * (middleY() * (1 - s) - (drawnView.y - view.y) * view.zoom));
    basePen.drawImage(finishedCanvas, 0, 0);
  }
  drawOverlay();
  timings.shows.push(performance.now() - began);
  for (const list of [timings.shows, timings.slices]) if (list.length > 500) list.shift();
}
function drawOverlay() { // the polygon under the pointer, the cross, and the marked points
  overlayPen.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
  overlayPen.clearRect(0, 0, wide, high);
  if (hovered >= 0) {
    overlayPen.beginPath();
    for (let k = offsets[hovered]; k < offsets[hovered + 1]; k++) overlayPen[k === offsets[hovered] ? "moveTo" : "lineTo"](xOf(corners[2 * rings[k]]), yOf(corners[2 * rings[k] + 1]));
    overlayPen.closePath();
    overlayPen.strokeStyle = "#ffffff"; overlayPen.lineWidth = 4.5; overlayPen.stroke();
    overlayPen.strokeStyle = "#111111"; overlayPen.lineWidth = 2; overlayPen.stroke(); // visible on every colour
  }
  if (usesKeys) {
    overlayPen.strokeStyle = dark() ? "#ffffff" : "#111111"; overlayPen.lineWidth = 1.6;
    const x = middleX(), y = middleY();
    overlayPen.beginPath(); overlayPen.moveTo(x - 9, y); overlayPen.lineTo(x + 9, y); overlayPen.moveTo(x, y - 9); overlayPen.lineTo(x, y + 9); overlayPen.stroke();
  }
  overlayPen.font = "600 13px system-ui, sans-serif"; overlayPen.lineWidth = 3; overlayPen.lineJoin = "round";
  for (const { name, at } of DATA.points) {
    const x = xOf(at[0]), y = yOf(at[1]);
    overlayPen.fillStyle = themeColour("--ink"); overlayPen.strokeStyle = themeColour("--paper");
    overlayPen.beginPath(); overlayPen.arc(x, y, 4, 0, 7); overlayPen.stroke(); overlayPen.fill();
    const room = overlayPen.measureText(name).width, left = x <= wide && x + 7 + room > wide ? x - 7 - room : x + 7; // beside the point, within the chart
    overlayPen.strokeText(name, left, y - 6); overlayPen.fillText(name, left, y - 6);
  }
  drawAxes(overlayPen);
}
