// Below the curves: classes in a band, breaks in a row for each layer, and the whole line with the range in it.
function drawBand() { // classes; those too narrow to see are gathered under markers, and none is left out
  markers = [];
  const to = view.lo + view.width, right = box.left + box.wide;
  let column = -1;
  pen.save();
  pen.beginPath(); pen.rect(box.left, 0, box.wide, high); pen.clip();
  for (let j = Math.max(0, last(bands.starts, view.lo)); j < bands.starts.length && bands.starts[j] <= to; j++) {
    if (stopOf(j) < view.lo) continue;
    const a = Math.max(box.left, sx(bands.starts[j])), b = Math.min(right, sx(stopOf(j))), kind = bands.classes[bands.of[j]], curve = curves[kind.curve];
    const whole = sx(stopOf(j)) - sx(bands.starts[j]);
    if (b - a >= 1 || Math.floor(a) !== column) {
      pen.fillStyle = fillOf(pen, look(curve), kind.tie ? 6 : curve.hatch);
      pen.fillRect(a, box.band, Math.max(1, b - a), BAND);
      column = Math.floor(a);
      if (j && whole >= 2 && bands.starts[j] >= view.lo) { pen.fillStyle = css("--ink"); pen.fillRect(a - .5, box.band - 3, 1, BAND + 6); pen.globalAlpha = .25; pen.fillRect(a - .5, box.top, 1, box.low - box.top); pen.globalAlpha = 1; }
    }
    if (whole < NARROW) {
      const x = (a + b) / 2, before = markers.at(-1);
      if (before && x - before.x < 10) { before.to = j; before.count++; before.kinds.add(bands.of[j]); } else markers.push({ x, from: j, to: j, count: 1, kinds: new Set([bands.of[j]]) });
    } else if (b - a > 14) {
      const text = shortened(kind.name, b - a - 10), room = pen.measureText(text).width;
      if (room <= b - a - 10 && (text === kind.name || b - a > 44)) {
        pen.fillStyle = look(curve); pen.fillRect((a + b - room) / 2 - 4, box.band + 5, room + 8, BAND - 10);
        pen.fillStyle = inkOn(look(curve)); pen.textAlign = "center"; pen.textBaseline = "middle"; pen.fillText(text, (a + b) / 2, box.band + BAND / 2 + .5);
      }
    }
  }
  pen.restore();
  pen.font = "10px system-ui, sans-serif"; pen.textAlign = "left"; pen.textBaseline = "middle";
  markers.forEach((m, i) => {
    const one = m.kinds.size === 1 ? curves[bands.classes[[...m.kinds][0]].curve] : null, y = box.band - 4;
    pen.beginPath(); pen.moveTo(m.x - 4.5, y - 7); pen.lineTo(m.x + 4.5, y - 7); pen.lineTo(m.x, y); pen.closePath();
    pen.fillStyle = one ? look(one) : css("--soft"); pen.fill();
    pen.strokeStyle = css("--ink"); pen.lineWidth = 1; pen.stroke();
    const text = m.count.toLocaleString("en");
    pen.fillStyle = css("--soft");
    if (m.count > 1 && m.x + 8 + pen.measureText(text).width < Math.min(markers[i + 1]?.x ?? Infinity, wide) - 6) pen.fillText(text, m.x + 8, y - 4);
  });
  pen.font = FONT;
}

function drawTicks(from, until, columns) { // breaks, each layer in its row
  nodes.forEach((node, n) => {
    if (!node.shown) return;
    const y = box.ticks + Math.floor(n * box.rows / nodes.length) * box.row, tall = Math.max(1, box.row - (box.row > 4 ? 2 : .5));
    const a = last(node.at, from) + 1, b = last(node.at, until);
    pen.fillStyle = look(node);
    if (!columns || b - a < 2 * columns.length) for (let k = a; k <= b; k++) pen.fillRect(sx(alphas[node.at[k]]) - .5, y, 1, tall);
    else {
      const count = columns.length - 1, step = box.wide / count;
      for (let k = 0, i = a, since = 0, shade = 0; k <= count; k++) { // columns as dense as each other are one
        const next = k < count ? last(node.at, columns[k + 1] - 1, i, b + 1) + 1 : i, now = next > i ? Math.min(5, next - i) : 0;
        if (now !== shade || k === count) {
          if (shade) { pen.globalAlpha = .4 + .12 * shade; pen.fillRect(box.left + since * step, y, (k - since) * step, tall); }
          since = k; shade = now;
        }
        i = next;
      }
      pen.globalAlpha = 1;
    }
    if (box.row >= 9 && !box.slim) { pen.font = "11px system-ui, sans-serif"; pen.textAlign = "left"; pen.textBaseline = "middle"; pen.fillStyle = css("--soft"); pen.fillText(shortened(node.name, box.right - 8), box.left + box.wide + 6, y + tall / 2); pen.font = FONT; }
  });
}

// the whole line below: where in it the range lies
const backdrop = document.createElement("canvas");
function drawWhole() {
  const w = box.wide, h = 34, p = backdrop.getContext("2d");
  strip.width = backdrop.width = Math.round(wide * dots); strip.height = backdrop.height = Math.round(h * dots);
  p.setTransform(dots, 0, 0, dots, 0, 0); p.clearRect(0, 0, wide, h);
  const at = alpha => box.left + (alpha - START) / (STOP - START) * w;
  if (bands) for (let j = 0, column = -1; j < bands.starts.length; j++) {
    const a = at(bands.starts[j]), b = at(stopOf(j)), c = bands.classes[bands.of[j]];
    if (b - a < 1 && Math.floor(a) === column) continue;
    p.fillStyle = fillOf(p, look(curves[c.curve]), c.tie ? 6 : curves[c.curve].hatch); p.fillRect(a, 5, Math.max(1, b - a), 14);
    column = Math.floor(a);
  }
  p.fillStyle = css("--soft");
  for (let x = 0, i = 0, most = Math.max(4, 3 * N / w); x < w; x++) {
    const next = last(alphas, START + (x + 1) / w * (STOP - START), i) + 1;
    if (next > i) { const tall = 10 * Math.sqrt(Math.min(1, (next - i) / most)); p.fillRect(box.left + x, (bands ? 32 : 27) - tall, 1, tall); }
    i = next;
  }
}
function frontWhole() {
  const at = alpha => box.left + (alpha - START) / (STOP - START) * box.wide, a = at(view.lo), b = Math.max(a + 3, at(view.lo + view.width));
  small.setTransform(1, 0, 0, 1, 0, 0); small.clearRect(0, 0, strip.width, strip.height); small.drawImage(backdrop, 0, 0);
  small.setTransform(dots, 0, 0, dots, 0, 0);
  small.fillStyle = css("--paper"); small.globalAlpha = .6; small.fillRect(box.left, 0, a - box.left, 34); small.fillRect(b, 0, box.left + box.wide - b, 34); small.globalAlpha = 1;
  small.strokeStyle = css("--accent"); small.lineWidth = 2; small.strokeRect(a, 2, b - a, 31);
  small.fillStyle = css("--accent"); small.fillRect(at(cursor) - 1, 0, 2, 34);
}
