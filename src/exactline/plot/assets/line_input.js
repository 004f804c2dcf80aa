// The input at the slider: an image, or a table of features in which those that change are marked.
const inputs = await Promise.all(DATA.inputs.map(async i => ({ ...i, start: await decodeArray(i.start), end: await decodeArray(i.end) })));

function paintImage(canvas, input, part) {
  const { high, wide, channels, start, end, range } = input, pen = canvas.getContext("2d"), image = pen.createImageData(wide, high);
  for (let p = 0; p < wide * high; p++) {
    for (let c = 0; c < 3; c++) {
      const at = p * channels + (channels === 3 ? c : 0);
      image.data[4 * p + c] = Math.round(255 * (interpolate(start[at], end[at], part) - range[0]) / (range[1] - range[0]));
    }
    image.data[4 * p + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
}
function addPicture(parent, input, caption, part, name) {
  const frame = addElement("figure", undefined, parent, name), canvas = addElement("canvas", undefined, frame);
  canvas.width = input.wide; canvas.height = input.high;
  canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", `${input.name}, ${caption}`);
  addElement("figcaption", caption, frame);
  paintImage(canvas, input, part);
  return canvas;
}
function addInput(input) {
  const section = addElement("div", undefined, $("inputs"));
  addElement("h2", `${input.name} at the slider`, section);
  if (input.kind === "image") {
    const row = addElement("div", undefined, section, "pictures");
    addPicture(row, input, "alpha 0", 0);
    input.here = addPicture(row, input, "here", START, "here");
    addPicture(row, input, "alpha 1", 1);
    addElement("p", `${input.channels === 3 ? "each channel" : "black to white"}: ${input.range[0]} to ${input.range[1]}`, section, "small");
    return;
  }
  const limited = input.names.length < input.count ? `the ${input.names.length} of ${input.count.toLocaleString("en")} that change most; ` : "";
  addElement("p", `${limited}${input.changed.toLocaleString("en")} of ${countNoun(input.count, "feature")} ${input.changed === 1 ? "changes" : "change"} along the line, marked`, section, "small");
  const scroll = addElement("div", undefined, section, "scroll"), table = addElement("table", undefined, scroll), head = addElement("tr", undefined, addElement("thead", undefined, table));
  scroll.tabIndex = 0; scroll.setAttribute("role", "region"); scroll.setAttribute("aria-label", `features of ${input.name}`);
  for (const name of ["feature", "alpha 0", "here", "alpha 1"]) addElement("th", name, head).scope = "col";
  const body = addElement("tbody", undefined, table);
  input.cells = input.names.map((name, i) => {
    const row = addElement("tr", undefined, body, input.start[i] === input.end[i] ? "" : "changed");
    addElement("td", name, row);
    addElement("td", shortNumber(input.start[i]), row, "number").title = input.start[i];
    const here = addElement("td", "", row, "number");
    addElement("td", shortNumber(input.end[i]), row, "number").title = input.end[i];
    return here;
  });
}
function showInputs(alpha) {
  for (const input of inputs) {
    if (input.kind === "image") paintImage(input.here, input, alpha);
    else input.cells.forEach((cell, i) => {
      const v = interpolate(input.start[i], input.end[i], alpha);
      cell.textContent = shortNumber(v); cell.title = v; cell.dataset.value = v;
    });
  }
}
