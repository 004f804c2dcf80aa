// What is known of a line: its breaks, its values anywhere, the extremes of any range at once.
const [alphas, births, doubts] = await Promise.all([D.alphas, D.births, D.doubts].map(unpacked));
const N = alphas.length, START = alphas[0], STOP = alphas[N - 1];
const bornBy = births.subarray(0, N), unitOf = births.subarray(N, 2 * N), tieOf = births.subarray(2 * N);
const curves = await Promise.all(D.curves.map(async c => ({ ...c, values: await unpacked(c.values), shown: true })));
const bands = D.decisions && { order: D.decisions.order, classes: D.decisions.classes };
if (bands) for (const name of ["starts", "of", "margins"]) bands[name] = await unpacked(D.decisions[name]);
const stopOf = j => j + 1 < bands.starts.length ? bands.starts[j + 1] : STOP; // intervals leave no gaps
const nodes = D.nodes.map(node => ({ ...node, shown: true, at: [] })), nodeOf = new Map(nodes.map(node => [node.node, node]));
for (let i = 0; i < N; i++) if (bornBy[i] >= 0) nodeOf.get(bornBy[i]).at.push(i);
for (const node of nodes) node.at = Int32Array.from(node.at);
const look = thing => thing[dark() ? "dark" : "light"];

const pieceAt = alpha => clamp(last(alphas, alpha), 0, N - 2);
function between(a, b, part) { // exact at both ends, and without overflow, as the library does it
  const mixed = part < .5 ? a + part * (b - a) : b - (b - a) * (1 - part);
  return Number.isFinite(mixed) ? mixed : (1 - part) * a + part * b;
}
function valueAt(values, alpha, piece = pieceAt(alpha)) {
  return between(values[piece], values[piece + 1], (alpha - alphas[piece]) / (alphas[piece + 1] - alphas[piece]));
}

// the least and the largest of each 16, of each 256, ... values, so that no range takes long
const FAN = 16;
function levelsOf(values) {
  const levels = [];
  for (let low = values, high = values; low.length > FAN;) {
    const n = Math.ceil(low.length / FAN), less = new Float64Array(n).fill(Infinity), more = new Float64Array(n).fill(-Infinity);
    for (let i = 0; i < low.length; i++) {
      const k = Math.floor(i / FAN);
      if (low[i] < less[k]) less[k] = low[i];
      if (high[i] > more[k]) more[k] = high[i];
    }
    levels.push({ low: less, high: more });
    low = less; high = more;
  }
  return levels;
}
for (const curve of curves) curve.levels = levelsOf(curve.values);
const found = { low: 0, high: 0 }; // what extremes() found: one object, for it is asked thousands of times a frame
function extremes(curve, from, to) { // of the values at breaks from <= i < to
  let least = Infinity, most = -Infinity, low = curve.values, high = curve.values, level = 0;
  while (from < to) {
    const end = level < curve.levels.length ? Math.min(to, Math.ceil(from / FAN) * FAN) : to;
    for (; from < end; from++) { if (low[from] < least) least = low[from]; if (high[from] > most) most = high[from]; }
    if (from >= to) break;
    const back = Math.max(from, Math.floor(to / FAN) * FAN);
    for (let i = back; i < to; i++) { if (low[i] < least) least = low[i]; if (high[i] > most) most = high[i]; }
    from /= FAN; to = back / FAN;
    ({ low, high } = curve.levels[level++]);
  }
  found.low = least; found.high = most;
  return found;
}

function intervalAt(alpha) { return bands ? clamp(last(bands.starts, alpha), 0, bands.starts.length - 1) : -1; }
function marginAt(alpha, piece, band) { // the lead over the best of the others
  const sign = bands.order === "max" ? 1 : -1, kind = bands.classes[bands.of[band]];
  if (kind.tie) return { margin: 0, rival: null };
  const lead = sign * valueAt(curves[kind.curve].values, alpha, piece);
  let best = -Infinity, rival = null;
  curves.forEach((c, k) => {
    if (k === kind.curve) return;
    const v = sign * valueAt(c.values, alpha, piece);
    if (v > best) { best = v; rival = c; }
  });
  return { margin: Math.max(0, lead - best), rival };
}
const birthText = i => {
  if (bornBy[i] < 0) return i === 0 || i === N - 1 ? "an end of the line" : "no node";
  return `${nodeOf.get(bornBy[i]).name}, unit ${unitOf[i]}${tieOf[i] > 1 ? `, first of ${tieOf[i].toLocaleString("en")} together` : ""}`;
};
function nearestBreak(alpha) {
  const i = pieceAt(alpha);
  return alpha - alphas[i] <= alphas[i + 1] - alpha ? i : i + 1;
}
function nextBreak(alpha, way) { // of the layers that are shown
  const any = !nodes.some(node => node.shown), wanted = i => any || bornBy[i] < 0 || nodeOf.get(bornBy[i]).shown;
  let i = way > 0 ? last(alphas, alpha) + 1 : last(alphas, alpha);
  if (way < 0 && alphas[i] === alpha) i--;
  while (i > 0 && i < N - 1 && !wanted(i)) i += way;
  return alphas[clamp(i, 0, N - 1)];
}
function nextBoundary(alpha, way) {
  const j = last(bands.starts, alpha);
  if (way > 0) return j + 1 < bands.starts.length ? bands.starts[j + 1] : STOP;
  return bands.starts[j] < alpha ? bands.starts[j] : bands.starts[Math.max(0, j - 1)];
}
