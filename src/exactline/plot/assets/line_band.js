// Below the curves: the band of classes, rows of breaks by layer, and an overview of the whole line.
function drawBand() { // class intervals; those too narrow to see are counted by markers above the band
  markers = [];
  const to = view.lo + view.width, right = box.left + box.wide;
  let column = -1;
  pen.save();
  pen.beginPath(); pen.rect(box.left, 0, box.wide, high); pen.clip();
  for (let j = Math.max(0, lastAtMost(decisions.starts, view.lo)); j < decisions.starts.length && decisions.starts[j] <= to; j++) {
    if (intervalEnd(j) < view.lo) continue;
    const a = Math.max(box.left, xOf(decisions.starts[j])), b = Math.min(right, xOf(intervalEnd(j))), kind = decisions.classes[decisions.class_of[j]], curve = curves[kind.curve];
    const whole = xOf(intervalEnd(j)) - xOf(decisions.starts[j]);
    if (b - a >= 1 || Math.floor(a) !== column) {
      pen.fillStyle = patternFill(pen, colourOf(curve), kind.tie ? 6 : curve.hatch);
      pen.fillRect(a, box.band, Math.max(1, b - a), BAND_HEIGHT);
      column = Math.floor(a);
      if (j && whole >= 2 && decisions.starts[j] >= view.lo) { pen.fillStyle = themeColour("--ink"); pen.fillRect(a - .5, box.band - 3, 1, BAND_HEIGHT + 6); pen.globalAlpha = .25; pen.fillRect(a - .5, box.top, 1, box.low - box.top); pen.globalAlpha = 1; }
    }
    if (whole < MIN_VISIBLE_WIDTH) {
      const x = (a + b) / 2, before = markers.at(-1);
      if (before && x - before.x < 10) { before.to = j; before.count++; before.kinds.add(decisions.class_of[j]); } else markers.push({ x, from: j, to: j, count: 1, kinds: new Set([decisions.class_of[j]]) });
    } else if (b - a > 14) {
      const text = shorten(kind.name, b - a - 10), room = pen.measureText(text).width;
      if (room <= b - a - 10 && (text === kind.name || b - a > 44)) {
        pen.fillStyle = colourOf(curve); pen.fillRect((a + b - room) / 2 - 4, box.band + 5, room + 8, BAND_HEIGHT - 10);
        pen.fillStyle = textColourOn(colourOf(curve)); pen.textAlign = "center"; pen.textBaseline = "middle"; pen.fillText(text, (a + b) / 2, box.band + BAND_HEIGHT / 2 + .5);
      }
    }
  }
  pen.restore();
  pen.font = "10px system-ui, sans-serif"; pen.textAlign = "left"; pen.textBaseline = "middle";
  markers.forEach((m, i) => {
    const one = m.kinds.size === 1 ? curves[decisions.classes[[...m.kinds][0]].curve] : null, y = box.band - 4;
    pen.beginPath(); pen.moveTo(m.x - 4.5, y - 7); pen.lineTo(m.x + 4.5, y - 7); pen.lineTo(m.x, y); pen.closePath();
    pen.fillStyle = one ? colourOf(one) : themeColour("--soft"); pen.fill();
    pen.strokeStyle = themeColour("--ink"); pen.lineWidth = 1; pen.stroke();
    const text = m.count.toLocaleString("en");
    pen.fillStyle = themeColour("--soft");
    if (m.count > 1 && m.x + 8 + pen.measureText(text).width < Math.min(markers[i + 1]?.x ?? Infinity, wide) - 6) pen.fillText(text, m.x + 8, y - 4);
  });
  pen.font = FONT;
}

function drawTicks(from, until, columns) { // breaks, a row for each layer
  nodes.forEach((node, n) => {
    if (!node.shown) return;
    const y = box.ticks + Math.floor(n * box.rows / nodes.length) * box.row, tall = Math.max(1, box.row - (box.row > 4 ? 2 : .5));
    const a = lastAtMost(node.at, from) + 1, b = lastAtMost(node.at, until);
    pen.fillStyle = colourOf(node);
    if (!columns || b - a < 2 * columns.length) for (let k = a; k <= b; k++) pen.fillRect(xOf(alphas[node.at[k]]) - .5, y, 1, tall);
    else {
      const count = columns.length - 1, step = box.wide / count;
      for (let k = 0, i = a, since = 0, shade = 0; k <= count; k++) { // neighbouring columns of equal density are drawn as one
        const next = k < count ? lastAtMost(node.at, columns[k + 1] - 1, i, b + 1) + 1 : i, now = next > i ? Math.min(5, next - i) : 0;
        if (now !== shade || k === count) {
          if (shade) { pen.globalAlpha = .4 + .12 * shade; pen.fillRect(box.left + since * step, y, (k - since) * step, tall); }
          since = k; shade = now;
        }
        i = next;
      }
      pen.globalAlpha = 1;
    }
    if (box.row >= 9 && !box.slim) { pen.font = "11px system-ui, sans-serif"; pen.textAlign = "left"; pen.textBaseline = "middle"; pen.fillStyle = themeColour("--soft"); pen.fillText(shorten(node.name, box.right - 8), box.left + box.wide + 6, y + tall / 2); pen.font = FONT; }
  });
}

// the overview: the whole line, and the visible range in it
const backdrop = document.createElement("canvas");
function drawOverview() {
  const w = box.wide, h = 34, p = backdrop.getContext("2d");
  overview.width = backdrop.width = Math.round(wide * pixelRatio); overview.height = backdrop.height = Math.round(h * pixelRatio);
  p.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0); p.clearRect(0, 0, wide, h);
  const at = alpha => box.left + (alpha - START) / (END - START) * w;
  if (decisions) for (let j = 0, column = -1; j < decisions.starts.length; j++) {
    const a = at(decisions.starts[j]), b = at(intervalEnd(j)), c = decisions.classes[decisions.class_of[j]];
    if (b - a < 1 && Math.floor(a) === column) continue;
    p.fillStyle = patternFill(p, colourOf(curves[c.curve]), c.tie ? 6 : curves[c.curve].hatch); p.fillRect(a, 5, Math.max(1, b - a), 14);
    column = Math.floor(a);
  }
  p.fillStyle = themeColour("--soft");
  for (let x = 0, i = 0, most = Math.max(4, 3 * breakCount / w); x < w; x++) {
    const next = lastAtMost(alphas, START + (x + 1) / w * (END - START), i) + 1;
    if (next > i) { const tall = 10 * Math.sqrt(Math.min(1, (next - i) / most)); p.fillRect(box.left + x, (decisions ? 32 : 27) - tall, 1, tall); }
    i = next;
  }
}
function drawOverviewOverlay() {
  const at = alpha => box.left + (alpha - START) / (END - START) * box.wide, a = at(view.lo), b = Math.max(a + 3, at(view.lo + view.width));
  overviewPen.setTransform(1, 0, 0, 1, 0, 0); overviewPen.clearRect(0, 0, overview.width, overview.height); overviewPen.drawImage(backdrop, 0, 0);
  overviewPen.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
  overviewPen.fillStyle = themeColour("--paper"); overviewPen.globalAlpha = .6; overviewPen.fillRect(box.left, 0, a - box.left, 34); overviewPen.fillRect(b, 0, box.left + box.wide - b, 34); overviewPen.globalAlpha = 1;
  overviewPen.strokeStyle = themeColour("--accent"); overviewPen.lineWidth = 2; overviewPen.strokeRect(a, 2, b - a, 31);
  overviewPen.fillStyle = themeColour("--accent"); overviewPen.fillRect(at(cursor) - 1, 0, 2, 34);
}
