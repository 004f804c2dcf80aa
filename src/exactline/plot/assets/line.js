// The line: its breaks and their origins, its values at any alpha, extremes over any range, classes and margins.
const [alphas, origins, ambiguous] = await Promise.all([DATA.alphas, DATA.origins, DATA.ambiguous].map(decodeArray));
const breakCount = alphas.length, START = alphas[0], END = alphas[breakCount - 1];
const originNode = origins.subarray(0, breakCount), originUnit = origins.subarray(breakCount, 2 * breakCount), originCount = origins.subarray(2 * breakCount);
const curves = await Promise.all(DATA.curves.map(async c => ({ ...c, values: await decodeArray(c.values), shown: true })));
const decisions = DATA.decisions && { order: DATA.decisions.order, classes: DATA.decisions.classes };
if (decisions) for (const name of ["starts", "class_of", "margins"]) decisions[name] = await decodeArray(DATA.decisions[name]);
const intervalEnd = j => j + 1 < decisions.starts.length ? decisions.starts[j + 1] : END; // intervals have no gaps between them
const nodes = DATA.nodes.map(node => ({ ...node, shown: true, at: [] })), nodeById = new Map(nodes.map(node => [node.node, node]));
for (let i = 0; i < breakCount; i++) if (originNode[i] >= 0) nodeById.get(originNode[i]).at.push(i);
for (const node of nodes) node.at = Int32Array.from(node.at);
const colourOf = thing => thing[dark() ? "dark" : "light"];

const pieceAt = alpha => clamp(lastAtMost(alphas, alpha), 0, breakCount - 2);
function interpolate(a, b, part) { // exact at both ends and without overflow, as in the library
  const mixed = part < .5 ? a + part * (b - a) : b - (b - a) * (1 - part);
  return Number.isFinite(mixed) ? mixed : (1 - part) * a + part * b;
}
function valueAt(values, alpha, piece = pieceAt(alpha)) {
  return interpolate(values[piece], values[piece + 1], (alpha - alphas[piece]) / (alphas[piece + 1] - alphas[piece]));
}

// minima and maxima of groups of 16, 256, ... values, so that the extremes of any range are found quickly
const FANOUT = 16;
function buildLevels(values) {
  const levels = [];
  for (let low = values, high = values; low.length > FANOUT;) {
    const n = Math.ceil(low.length / FANOUT), less = new Float64Array(n).fill(Infinity), more = new Float64Array(n).fill(-Infinity);
    for (let i = 0; i < low.length; i++) {
      const k = Math.floor(i / FANOUT);
      if (low[i] < less[k]) less[k] = low[i];
      if (high[i] > more[k]) more[k] = high[i];
    }
    levels.push({ low: less, high: more });
    low = less; high = more;
  }
  return levels;
}
for (const curve of curves) curve.levels = buildLevels(curve.values);
const extremeValues = { low: 0, high: 0 }; // the result of extremes(), reused because it is called thousands of times a frame
function extremes(curve, from, to) { // of the values at breaks i with from <= i < to
  let least = Infinity, most = -Infinity, low = curve.values, high = curve.values, level = 0;
  while (from < to) {
    const end = level < curve.levels.length ? Math.min(to, Math.ceil(from / FANOUT) * FANOUT) : to;
    for (; from < end; from++) { if (low[from] < least) least = low[from]; if (high[from] > most) most = high[from]; }
    if (from >= to) break;
    const back = Math.max(from, Math.floor(to / FANOUT) * FANOUT);
    for (let i = back; i < to; i++) { if (low[i] < least) least = low[i]; if (high[i] > most) most = high[i]; }
    from /= FANOUT; to = back / FANOUT;
    ({ low, high } = curve.levels[level++]);
  }
  extremeValues.low = least; extremeValues.high = most;
  return extremeValues;
}

function intervalAt(alpha) { return decisions ? clamp(lastAtMost(decisions.starts, alpha), 0, decisions.starts.length - 1) : -1; }
function marginAt(alpha, piece, band) { // the lead over the runner-up
  const sign = decisions.order === "max" ? 1 : -1, kind = decisions.classes[decisions.class_of[band]];
  if (kind.tie) return { margin: 0, runnerUp: null };
  const lead = sign * valueAt(curves[kind.curve].values, alpha, piece);
  let best = -Infinity, runnerUp = null;
  curves.forEach((c, k) => {
    if (k === kind.curve) return;
    const v = sign * valueAt(c.values, alpha, piece);
    if (v > best) { best = v; runnerUp = c; }
  });
  return { margin: Math.max(0, lead - best), runnerUp };
}
const originText = i => {
  if (originNode[i] < 0) return i === 0 || i === breakCount - 1 ? "an end of the line" : "no node";
  return `${nodeById.get(originNode[i]).name}, unit ${originUnit[i]}${originCount[i] > 1 ? `, first of ${originCount[i].toLocaleString("en")} crossings` : ""}`;
};
function nearestBreak(alpha) {
  const i = pieceAt(alpha);
  return alpha - alphas[i] <= alphas[i + 1] - alpha ? i : i + 1;
}
function nextBreak(alpha, direction) { // among the layers that are shown
  const any = !nodes.some(node => node.shown), isShown = i => any || originNode[i] < 0 || nodeById.get(originNode[i]).shown;
  let i = direction > 0 ? lastAtMost(alphas, alpha) + 1 : lastAtMost(alphas, alpha);
  if (direction < 0 && alphas[i] === alpha) i--;
  while (i > 0 && i < breakCount - 1 && !isShown(i)) i += direction;
  return alphas[clamp(i, 0, breakCount - 1)];
}
function nextBoundary(alpha, direction) {
  const j = lastAtMost(decisions.starts, alpha);
  if (direction > 0) return j + 1 < decisions.starts.length ? decisions.starts[j + 1] : END;
  return decisions.starts[j] < alpha ? decisions.starts[j] : decisions.starts[Math.max(0, j - 1)];
}
