// What is known at the pointer: position, polygon, class, values of the outputs, and the input itself.
const outputs = await Promise.all(DATA.outputs.map(async o => ({ ...o, values: await decodeArray(o.values) })));
const inputs = await Promise.all(DATA.inputs.map(async i => ({ ...i, start: await decodeArray(i.start), first: await decodeArray(i.first), second: await decodeArray(i.second) })));
const inputAt = (input, k, x, y) => input.start[k] + x * input.first[k] + y * input.second[k];

function cornerWeights(p, x, y) { // the triangle of a polygon's fan that holds a point, and the weights of its corners
  let best = null, depth = -Infinity;
  const a = rings[offsets[p]], ax = corners[2 * a], ay = corners[2 * a + 1];
  for (let k = offsets[p] + 1; k + 1 < offsets[p + 1]; k++) {
    const b = rings[k], c = rings[k + 1], ux = corners[2 * b] - ax, uy = corners[2 * b + 1] - ay, vx = corners[2 * c] - ax, vy = corners[2 * c + 1] - ay;
    const area = ux * vy - uy * vx, s = ((x - ax) * vy - (y - ay) * vx) / area, t = (ux * (y - ay) - uy * (x - ax)) / area, least = Math.min(s, t, 1 - s - t);
    if (least > depth) { depth = least; best = { at: [a, b, c], weights: [1 - s - t, s, t] }; }
  }
  return best;
}
function addInput(input) {
  const section = addElement("div", undefined, $("inputs"));
  addElement("h2", `${input.name} under the pointer`, section);
  if (input.kind === "image") {
    const canvas = input.canvas = addElement("canvas", undefined, addElement("figure", undefined, section));
    canvas.width = input.wide; canvas.height = input.high;
    canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", `${input.name} under the pointer`);
    addElement("p", `${input.channels === 3 ? "each channel" : "black to white"}: ${shortNumber(input.range[0])} to ${shortNumber(input.range[1])}`, section, "small");
    return;
  }
  if (input.names.length < input.count) addElement("p", `the ${input.names.length} of ${input.count.toLocaleString("en")} features that change most`, section, "small");
  const list = addElement("div", undefined, section, "scroll");
  list.tabIndex = 0; list.setAttribute("role", "region"); list.setAttribute("aria-label", `features of ${input.name}`);
  input.cells = input.names.map((name, k) => {
    const row = addElement("div", undefined, list, "row");
    addElement("span", name, row, input.first[k] || input.second[k] ? "changed" : "");
    return addElement("b", "", row);
  });
}
function showInput(x, y) { // y as in the plane, before it is stretched
  for (const input of inputs) {
    if (input.kind === "table") { input.cells.forEach((cell, k) => showNumber(cell, inputAt(input, k, x, y))); continue; }
    const pen = input.canvas.getContext("2d"), image = pen.createImageData(input.wide, input.high), [low, top] = input.range;
    for (let p = 0; p < input.wide * input.high; p++) {
      for (let c = 0; c < 3; c++) image.data[4 * p + c] = Math.round(255 * (inputAt(input, p * input.channels + (input.channels === 3 ? c : 0), x, y) - low) / (top - low));
      image.data[4 * p + 3] = 255;
    }
    pen.putImageData(image, 0, 0);
  }
}
function showOutputs(p, x, y) {
  const near = p < 0 ? null : cornerWeights(p, x, y);
  for (const o of outputs) {
    o.here = near ? near.weights.reduce((sum, w, k) => sum + w * o.values[near.at[k]], 0) : NaN;
    if (near) showNumber(o.cell, o.here); else o.cell.textContent = "";
  }
}
function update(x, y) {
  const info = $("info");
  info.replaceChildren();
  const row = (name, value, full) => { addElement("dt", name, info); const cell = addElement("dd", value, info); if (full !== undefined) cell.title = full; };
  const span = Math.max(wide, high) / view.zoom; // digits that the screen can tell apart, and not more
  row("at", `${positionText(x, span)}, ${positionText(y / stretch, span / stretch)}`, `${x}, ${y / stretch}`);
  const p = polygonAt(x, y);
  if (p !== hovered) { hovered = p; drawOverlay(); }
  showOutputs(p, x, y);
  $("inputs").classList.toggle("away", p < 0);
  if (p < 0) return row("polygon", "none: outside");
  showInput(x, y / stretch);
  row("polygon", `${p.toLocaleString("en")} of ${polygonCount.toLocaleString("en")}, ${offsets[p + 1] - offsets[p]} corners`, p);
  row("area", shortNumber(areas[p]), areas[p]);
  const r = classes ? regionAt(x, y) : -1;
  if (r >= 0) { row("class", classes.regions[r].name); row("its region", `area ${shortNumber(classes.regions[r].area)}`, classes.regions[r].area); }
  const e = edgeNear(p, x, y);
  if (e < 0) return;
  const shared = origins[3 * e + 2] > 1 ? `, one of ${origins[3 * e + 2]} crossings` : "";
  row("nearest edge", origins[3 * e] < 0 ? "outline" : `${DATA.names[origins[3 * e]]}, unit ${origins[3 * e + 1]}${shared}`);
}
const positionText = (v, span) => {
  const decimals = clamp(Math.ceil(3 - Math.log10(span)), 0, 15);
  return Math.abs(v) >= 1e7 || span < 1e-9 ? String(Number(v.toPrecision(12))) : v.toFixed(decimals);
};
