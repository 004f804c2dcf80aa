// The input at the slider: a picture, or a table of features in which those that change stand out.
const inputs = await Promise.all(D.inputs.map(async i => ({ ...i, start: await unpacked(i.start), end: await unpacked(i.end) })));

function paintImage(canvas, input, part) {
  const { high, wide, channels, start, end, range } = input, pen = canvas.getContext("2d"), image = pen.createImageData(wide, high);
  for (let p = 0; p < wide * high; p++) {
    for (let c = 0; c < 3; c++) {
      const at = p * channels + (channels === 3 ? c : 0);
      image.data[4 * p + c] = Math.round(255 * (between(start[at], end[at], part) - range[0]) / (range[1] - range[0]));
    }
    image.data[4 * p + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
}
function picture(parent, input, caption, part, name) {
  const frame = made("figure", undefined, parent, name), canvas = made("canvas", undefined, frame);
  canvas.width = input.wide; canvas.height = input.high;
  canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", `${input.name}, ${caption}`);
  made("figcaption", caption, frame);
  paintImage(canvas, input, part);
  return canvas;
}
function openInput(input) {
  const section = made("div", undefined, $("inputs"));
  made("h2", `${input.name} at the slider`, section);
  if (input.kind === "image") {
    const row = made("div", undefined, section, "pictures");
    picture(row, input, "alpha 0", 0);
    input.here = picture(row, input, "here", START, "here");
    picture(row, input, "alpha 1", 1);
    made("p", `${input.channels === 3 ? "each channel" : "black to white"}: ${input.range[0]} to ${input.range[1]}`, section, "small");
    return;
  }
  const some = input.names.length < input.count ? `the ${input.names.length} of ${input.count.toLocaleString("en")} that change most; ` : "";
  made("p", `${some}${input.changed.toLocaleString("en")} of ${counted(input.count, "feature")} ${input.changed === 1 ? "changes" : "change"} along the line, marked`, section, "small");
  const scroll = made("div", undefined, section, "scroll"), table = made("table", undefined, scroll), head = made("tr", undefined, made("thead", undefined, table));
  scroll.tabIndex = 0; scroll.setAttribute("role", "region"); scroll.setAttribute("aria-label", `features of ${input.name}`);
  for (const name of ["feature", "alpha 0", "here", "alpha 1"]) made("th", name, head).scope = "col";
  const body = made("tbody", undefined, table);
  input.cells = input.names.map((name, i) => {
    const row = made("tr", undefined, body, input.start[i] === input.end[i] ? "" : "changed");
    made("td", name, row);
    made("td", short(input.start[i]), row, "number").title = input.start[i];
    const here = made("td", "", row, "number");
    made("td", short(input.end[i]), row, "number").title = input.end[i];
    return here;
  });
}
const short = v => { const text = String(v); return text.length <= 9 ? text : String(Number(v.toPrecision(6))); };
function showInputs(alpha) {
  for (const input of inputs) {
    if (input.kind === "image") paintImage(input.here, input, alpha);
    else input.cells.forEach((cell, i) => {
      const v = between(input.start[i], input.end[i], alpha);
      cell.textContent = short(v); cell.title = v; cell.dataset.value = v;
    });
  }
}
