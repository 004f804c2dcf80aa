// The picture: a list of small jobs, done a few milliseconds at a time into a hidden canvas, shown when finished.
const took = { all: 0, slices: [], shows: [] }; // ms: of the last whole picture, of its parts, of moving the finished one
const STEP = 4000;
function* jobs() {
  const half = 1 / view.zoom, left = view.x - wide * half / 2, right = view.x + wide * half / 2;
  const low = view.y - high * half / 2, top = view.y + high * half / 2;
  ink.setTransform(dots, 0, 0, dots, 0, 0);
  ink.fillStyle = css("--paper"); ink.fillRect(0, 0, wide, high);
  ink.lineJoin = ink.lineCap = "round";
  if (style === "regions") {
    const tints = dark() ? D.dark : D.light;
    for (let from = 0; from < P; from += STEP) {
      const paths = tints.map(() => new Path2D());
      for (let p = from; p < Math.min(P, from + STEP); p++) {
        if (bounds[4 * p] > right || bounds[4 * p + 2] < left || bounds[4 * p + 1] > top || bounds[4 * p + 3] < low) continue;
        if ((bounds[4 * p + 2] - bounds[4 * p]) * view.zoom < .4 && (bounds[4 * p + 3] - bounds[4 * p + 1]) * view.zoom < .4) continue;
        const path = paths[p % tints.length];
        for (let k = offsets[p]; k < offsets[p + 1]; k++) {
          const c = 2 * rings[k], x = sx(corners[c]), y = sy(corners[c + 1]);
          if (k === offsets[p]) path.moveTo(x, y); else path.lineTo(x, y);
        }
        path.closePath();
      }
      paths.forEach((path, i) => { ink.fillStyle = tints[i]; ink.fill(path); });
      yield;
    }
  } else {
    for (let r = 0; r < classes.regions.length; r++) {
      const found = classes.regions[r], path = new Path2D();
      for (const [from, to] of found.rings) {
        for (let i = from; i < to; i++) {
          const x = sx(rims[2 * i]), y = sy(rims[2 * i + 1]);
          if (i === from) path.moveTo(x, y); else path.lineTo(x, y);
        }
        path.closePath();
      }
      ink.fillStyle = fillOf(ink, found.color, found.hatch);
      ink.fill(path, "evenodd");
      if (r % 50 === 49) yield;
    }
  }
  const faint = style === "decisions";
  const dense = Math.min(1, Math.max(.25, view.zoom / whole() * 60 / Math.sqrt(P)));
  for (let n = D.nodes.length - 1; n >= -1; n--) {
    if (n >= 0 && hidden.has(n)) continue;
    const node = n < 0 ? -1 : D.nodes[n].node;
    ink.strokeStyle = n < 0 ? css("--ink") : faint ? "#222222" : D.nodes[n][dark() ? "dark" : "light"];
    ink.globalAlpha = n >= 0 && faint ? .16 : 1;
    ink.lineWidth = n < 0 ? 1.4 : Math.max(.3, (1.8 - 1.0 * n / Math.max(1, D.nodes.length - 1)) * (faint ? .5 : 1) * dense);
    for (let from = 0; from < E; from += STEP) {
      let some = false;
      ink.beginPath();
      for (let e = from; e < Math.min(E, from + STEP); e++) {
        if (births[3 * e] !== node) continue;
        const a = 2 * edges[2 * e], b = 2 * edges[2 * e + 1];
        const xa = corners[a], ya = corners[a + 1], xb = corners[b], yb = corners[b + 1];
        if (Math.max(xa, xb) < left || Math.min(xa, xb) > right || Math.max(ya, yb) < low || Math.min(ya, yb) > top) continue;
        if (Math.abs(xa - xb) * view.zoom < .3 && Math.abs(ya - yb) * view.zoom < .3) continue;
        ink.moveTo(sx(xa), sy(ya)); ink.lineTo(sx(xb), sy(yb)); some = true;
      }
      if (some) { ink.stroke(); yield; }
    }
  }
  ink.globalAlpha = 1;
  if (faint) {
    ink.strokeStyle = "#111111"; ink.lineWidth = 1.8;
    for (let from = 0; from < between.length; from += 4 * STEP) {
      ink.beginPath();
      for (let k = from; k < Math.min(between.length, from + 4 * STEP); k += 4) {
        ink.moveTo(sx(between[k]), sy(between[k + 1])); ink.lineTo(sx(between[k + 2]), sy(between[k + 3]));
      }
      ink.stroke();
      yield;
    }
    names();
  }
}
function spot(region) { // a place well inside a region for its name: the deepest of a few
  if (region.spot !== undefined) return region.spot;
  const [a, b, c, d] = region.box;
  let best = null, most = 0;
  for (let i = 1; i < 10; i++) for (let j = 1; j < 10; j++) {
    const x = a + (c - a) * i / 10, y = b + (d - b) * j / 10;
    let reach = 0;
    while (reach < 5 && [[1, 0], [-1, 0], [0, 1], [0, -1]].every(([u, v]) => within(region, x + u * (reach + 1) * (c - a) / 20, y + v * (reach + 1) * (d - b) / 20))) reach++;
    if (reach > most && within(region, x, y)) { most = reach; best = { x, y, room: 2 * reach * (c - a) / 20 }; }
  }
  return region.spot = best;
}
function names() { // of regions large enough to hold them
  ink.font = "600 13px system-ui, sans-serif"; ink.textAlign = "center"; ink.textBaseline = "middle";
  for (const region of classes.regions) {
    if ((region.box[2] - region.box[0]) * view.zoom < 60 || (region.box[3] - region.box[1]) * view.zoom < 30) continue;
    const at = spot(region), room = ink.measureText(region.name).width;
    if (!at || room + 6 > at.room * view.zoom) continue;
    ink.fillStyle = region.color; ink.globalAlpha = .85; ink.fillRect(sx(at.x) - room / 2 - 4, sy(at.y) - 10, room + 8, 20); ink.globalAlpha = 1;
    ink.fillStyle = inkOn(region.color); ink.fillText(region.name, sx(at.x), sy(at.y));
  }
}
let running = null, ticket = 0, due = true;
function redraw() { // soon: a picture that is wanted again before it is finished starts anew
  clearTimeout(ticket);
  due = true;
  running = null;
  ticket = setTimeout(() => { running = { left: jobs(), at: { ...view }, began: performance.now() }; requestAnimationFrame(work); }, shown ? 70 : 0);
  requestAnimationFrame(show);
}
let finished = null;
function work() {
  const mine = running, began = performance.now(), until = began + 12;
  if (!mine) return;
  while (performance.now() < until)
    if (mine.left.next().done) {
      running = null; due = false;
      finished ??= document.createElement("canvas");
      finished.width = back.width; finished.height = back.height;
      finished.getContext("2d").drawImage(back, 0, 0);
      shown = mine.at;
      took.all = performance.now() - mine.began;
      return show();
    }
  took.slices.push(performance.now() - began);
  requestAnimationFrame(work);
}
function show() { // the finished picture, moved and stretched to where the view is now
  const began = performance.now();
  paint.setTransform(1, 0, 0, 1, 0, 0);
  paint.fillStyle = css("--paper"); paint.fillRect(0, 0, base.width, base.height);
  if (shown) {
    const s = view.zoom / shown.zoom;
    paint.setTransform(s, 0, 0, s, dots * (wide / 2 * (1 - s) + (shown.x - view.x) * view.zoom), dots * (high / 2 * (1 - s) - (shown.y - view.y) * view.zoom));
    paint.drawImage(finished, 0, 0);
  }
  front();
  took.shows.push(performance.now() - began);
  for (const list of [took.shows, took.slices]) if (list.length > 500) list.shift();
}
function front() { // the polygon under the pointer and the named points
  over.setTransform(dots, 0, 0, dots, 0, 0);
  over.clearRect(0, 0, wide, high);
  if (mark >= 0) {
    over.beginPath();
    for (let k = offsets[mark]; k < offsets[mark + 1]; k++) over[k === offsets[mark] ? "moveTo" : "lineTo"](sx(corners[2 * rings[k]]), sy(corners[2 * rings[k] + 1]));
    over.closePath();
    over.strokeStyle = "#ffffff"; over.lineWidth = 4.5; over.stroke();
    over.strokeStyle = "#111111"; over.lineWidth = 2; over.stroke(); // seen on every colour
  }
  if (keyed) {
    over.strokeStyle = dark() ? "#ffffff" : "#111111"; over.lineWidth = 1.6;
    over.beginPath(); over.moveTo(wide / 2 - 9, high / 2); over.lineTo(wide / 2 + 9, high / 2); over.moveTo(wide / 2, high / 2 - 9); over.lineTo(wide / 2, high / 2 + 9); over.stroke();
  }
  over.font = "600 13px system-ui, sans-serif"; over.lineWidth = 3; over.lineJoin = "round";
  for (const { name, at } of D.points) {
    const x = sx(at[0]), y = sy(at[1]);
    over.fillStyle = "#222222"; over.strokeStyle = "#ffffff";
    over.beginPath(); over.arc(x, y, 4, 0, 7); over.stroke(); over.fill();
    const room = over.measureText(name).width, left = x <= wide && x + 7 + room > wide ? x - 7 - room : x + 7; // beside it, and on the picture
    over.strokeText(name, left, y - 6); over.fillText(name, left, y - 6);
  }
}
