"use strict";
const LAW = DATA.law;
const SPARSE = DATA.sparse;
const state = {};

function slider(box, name, label, values, start, show, changed) {
  const row = make("div", undefined, "slider");
  const input = make("input");
  Object.assign(input, { type: "range", min: 0, max: values.length - 1, step: 1, value: start, id: `slider-${name}` });
  const title = make("label", label);
  title.htmlFor = input.id;
  const output = make("output", show(values[start]));
  output.htmlFor = input.id;
  input.setAttribute("aria-valuetext", show(values[start]));
  state[name] = values[start];
  input.addEventListener("input", () => {
    state[name] = values[Number(input.value)];
    output.textContent = show(state[name]);
    input.setAttribute("aria-valuetext", show(state[name]));
    changed();
  });
  row.append(title, input, output);
  byId(box).append(row);
}

// Bilinear in (log sigma, log n) of the logarithm of the tabulated law.
function locate(grid, value) {
  let k = 0;
  while (k < grid.length - 2 && grid[k + 1] < value) k++;
  const share = (value - grid[k]) / (grid[k + 1] - grid[k]);
  return [k, Math.min(1, Math.max(0, share))];
}
function law(table, sigma, column) {
  const [k, share] = locate(LAW.logSigma, Math.log(sigma));
  return Math.exp((1 - share) * table[k][column] + share * table[k + 1][column]);
}
function curve(strength, d) {
  const sigmas = LAW.lengths[d].map((r) => Math.max(strength * r, Math.exp(LAW.logSigma[0])));
  const size = sigmas.reduce((a, s) => a + s * s, 0) / sigmas.length;
  const errors = LAW.n.map((_, column) => Math.sqrt(sigmas.reduce((total, s) =>
    total + law(LAW.logMse, s, column) + (d - 1) * law(LAW.logParticipation, s, column), 0) / sigmas.length / size));
  return { sigmas, errors };
}

function drawTokens() {
  const strength = state.horizon * state.sharpness;
  const { sigmas, errors } = curve(strength, state.dim);
  const [k, share] = locate(LAW.n.map(Math.log), Math.log(state.n));
  const here = Math.exp((1 - share) * Math.log(errors[k]) + share * Math.log(errors[k + 1]));
  const slope = -(Math.log(errors[k + 1]) - Math.log(errors[k])) / (Math.log(LAW.n[k + 1]) - Math.log(LAW.n[k]));
  const edge = Math.sqrt(2 * Math.log(state.n));
  const frozen = sigmas.filter((s) => s > edge).length / sigmas.length;
  const calm = sigmas.filter((s) => s < edge / 2).length / sigmas.length;
  byId("token-says").textContent = `Over ${short(state.n)} tokens the error is ${percent(here, 1)} of the output, ` +
    `with a local slope of −${slope.toFixed(2)}. ${percent(calm)} of queries are Gaussian, ` +
    `${percent(1 - calm - frozen)} between, ${percent(frozen)} frozen: a handful of keys has all the weight.`;
  const guide = LAW.n.map((n) => errors[errors.length - 1] * Math.sqrt(LAW.n[LAW.n.length - 1] / n));
  plot("law-plot", [
    { x: LAW.n, y: guide, mode: "lines", name: "slope 1/2", line: { color: css("--soft"), dash: "dot", width: 1.5 } },
    { x: LAW.n, y: errors, mode: "lines", name: "exact law", line: { color: css("--c1"), width: 2.5 } },
    { x: [state.n], y: [here], mode: "markers", name: "here", marker: { color: css("--c2"), size: 11 } },
  ], logAxis("tokens, n", LAW.n), logAxis("relative error", [], { range: [-4.2, 1.3] }));
  const widest = Math.max(2 * edge, ...sigmas) * 1.05;
  const bins = 30;
  const counts = new Array(bins).fill(0);
  sigmas.forEach((s) => { counts[Math.min(bins - 1, Math.floor((s / widest) * bins))] += 1 / sigmas.length; });
  const mark = (x, dash) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1,
    line: { color: css("--soft"), width: 1.8, dash } });
  plot("regime-plot", [{ type: "bar", x: counts.map((_, j) => ((j + 0.5) * widest) / bins), y: counts,
    marker: { color: css("--c1") }, showlegend: false }],
  axis("spread of a query's scores", { range: [0, widest] }), axis("share of queries"),
  { shapes: [mark(edge / 2, "dot"), mark(edge, "solid")], bargap: 0.05 });
}

const NAMES = { attention: ["--c1", "attention"], pooled: ["--c2", "mean pooling"], vectorized: ["--c4", "all tokens"] };
function sparseAt(model, l, r, t, a) {
  return SPARSE.error[model][SPARSE.length.indexOf(l)][SPARSE.signals.indexOf(r)][SPARSE.strength.indexOf(t)][SPARSE.alpha.indexOf(a)];
}
function drawSparse() {
  const { length: l, signals: r, strength: t, alpha: a } = state;
  const line = (model, x, y) => ({ x, y, name: NAMES[model][1], mode: "lines+markers",
    line: { color: css(NAMES[model][0]), width: 2.2 }, marker: { size: 5 } });
  const models = Object.keys(NAMES);
  const level = axis("test error", { range: [0, 0.52] });
  const here = (x) => ({ shapes: [{ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1,
    line: { color: css("--soft"), dash: "dot", width: 1.5 } }] });
  plot("strength-plot", models.map((m) => line(m, SPARSE.strength, SPARSE.strength.map((s) => sparseAt(m, l, r, s, a)))),
    axis("strength θ"), level, here(t));
  plot("alpha-plot", models.map((m) => line(m, SPARSE.alpha, SPARSE.alpha.map((s) => sparseAt(m, l, r, t, s)))),
    logAxis("labelled bags per dimension, α", SPARSE.alpha), level, here(a));
  byId("sparse-says").textContent = models.map((m) =>
    `${NAMES[m][1]} errs in ${percent(sparseAt(m, l, r, t, a), 1)}`).join(", ") + ".";
}

const geometric = (low, high, count) => Array.from({ length: count }, (_, k) =>
  Number((low * (high / low) ** (k / (count - 1))).toPrecision(2)));
slider("token-sliders", "horizon", "horizon H", geometric(0.05, 3, 40), 20, short, drawTokens);
slider("token-sliders", "dim", "dimension d", Object.keys(LAW.lengths).map(Number), 6, short, drawTokens);
slider("token-sliders", "n", "tokens n", geometric(4, 1e9, 60), 20, short, drawTokens);
slider("token-sliders", "sharpness", "sharpening λ", geometric(0.1, 10, 41), 20, short, drawTokens);
slider("sparse-sliders", "length", "tokens L", SPARSE.length, 1, short, drawSparse);
slider("sparse-sliders", "signals", "signals R", SPARSE.signals, 0, short, drawSparse);
slider("sparse-sliders", "strength", "strength θ", SPARSE.strength, 4, short, drawSparse);
slider("sparse-sliders", "alpha", "bags per dimension α", SPARSE.alpha, 3, short, drawSparse);
drawTokens();
drawSparse();
drawn.set("page", () => { drawTokens(); drawSparse(); });
