// The axes: a strip below and one to the left of the chart, with round numbers and the names of the axes.
const AXIS_FONT = "12px system-ui, sans-serif";
function drawAxes(pen) {
  const right = wide, bottom = high - MARGIN_BOTTOM, [first, second] = DATA.axes;
  pen.save();
  pen.fillStyle = themeColour("--paper");
  pen.fillRect(0, bottom, wide, MARGIN_BOTTOM); pen.fillRect(0, 0, MARGIN_LEFT, high);
  pen.fillStyle = themeColour("--rule");
  pen.fillRect(MARGIN_LEFT, bottom, right - MARGIN_LEFT, 1); pen.fillRect(MARGIN_LEFT - 1, 0, 1, bottom + 1);
  pen.font = AXIS_FONT; pen.fillStyle = themeColour("--soft");
  const xAxis = axisTicks(view.x - (middleX() - MARGIN_LEFT) / view.zoom, view.x + (right - middleX()) / view.zoom, (right - MARGIN_LEFT) / 76);
  pen.textAlign = "center"; pen.textBaseline = "top";
  for (const { share, text } of xAxis.ticks) {
    const x = MARGIN_LEFT + share * (right - MARGIN_LEFT), half = pen.measureText(text).width / 2;
    pen.fillRect(x - .5, bottom, 1, 4);
    if (x - half > MARGIN_LEFT - 8 && x + half < right) pen.fillText(text, x, bottom + 6);
  }
  pen.fillText(axisTitle(first, xAxis.base, right - MARGIN_LEFT - 20), (MARGIN_LEFT + right) / 2, bottom + 21);
  const yAxis = axisTicks((view.y - (bottom - middleY()) / view.zoom) / stretch, (view.y + middleY() / view.zoom) / stretch, bottom / 60);
  pen.textAlign = "right"; pen.textBaseline = "middle";
  for (const { share, text } of yAxis.ticks) {
    const y = bottom - share * bottom;
    pen.fillRect(MARGIN_LEFT - 4, y - .5, 4, 1);
    if (y > 7 && y < bottom - 2) pen.fillText(text, MARGIN_LEFT - 6, y, MARGIN_LEFT - 22);
  }
  pen.translate(10, bottom / 2); pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillText(axisTitle(second, yAxis.base, bottom - 20), 0, 0);
  pen.restore();
  function axisTitle(name, from, room) {
    const text = from === null ? name : `${name} = ${shortNumber(from)} + ...`;
    let shown = text;
    while (shown.length > 4 && pen.measureText(shown).width > room) shown = `${shown.slice(0, -2)}\u2026`;
    return shown;
  }
}
