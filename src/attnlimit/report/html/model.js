"use strict";
const KINDS = {
  diffuse: ["--c3", "D", "diffuse: many tokens share the weight"],
  retrieval: ["--c1", "R", "retrieval: few keys, other ones for each query"],
  sink: ["--c5", "S", "sink: one token takes much of the weight"],
  frozen: ["--c2", "F", "few keys: a handful take all the weight"],
  dense: ["--soft", "X", "dense: half of the tokens are not enough"],
};
const SCHEMES = {
  "sample": ["--c3", "circle", "random sample"], "top-k": ["--c1", "square", "top-k"],
  "local": ["--c5", "diamond", DATA.single ? DATA.single.local : "local"], "top-k + sample": ["--c4", "triangle-up", "top-k + weighted sample"],
};
const RAMP = [[0, 32, 76], [49, 68, 107], [102, 105, 112], [149, 143, 120], [203, 186, 105], [255, 233, 69]];
const SINGLE = DATA.single; // heads one by one, where they were surveyed
const ROWS = DATA.layers.length;
const COLUMNS = DATA.heads;
const CELLS = SINGLE ? SINGLE.cells : DATA.layers.flatMap((layer) => (
  Array.from({ length: COLUMNS }, (_, head) => ({ layer, head }))));
const share = (index) => atLevel().headShares[index];
const keysRead = (index) => atLevel().headKeys[index];
const QUANTITIES = Object.assign({}, OUT ? {
  share: { label: "share of the error", value: share, text: (k) => (100 * share(k)).toFixed(1), end: percent,
    log: false },
  keys: { label: "keys read", value: keysRead, text: (k) => keysRead(k).toFixed(0), log: false },
} : {}, SINGLE ? {
  tokens: { label: "tokens it needs alone", value: (k) => CELLS[k].tokens, text: (k) => String(CELLS[k].tokens) },
  horizon: { label: "horizon H", value: (k) => CELLS[k].horizon, text: (k) => CELLS[k].horizon.toFixed(1), log: true },
  stored: { label: "tokens stored", value: (k) => CELLS[k].stored, text: (k) => String(CELLS[k].stored) },
  kind: { label: "kind", text: (k) => KINDS[CELLS[k].kind][1] },
} : {});
let quantity = Object.keys(QUANTITIES)[0];
let chosen = SINGLE ? SINGLE.chosen : -1;

function ramp(share) {
  const place = Math.min(0.9999, Math.max(0, share)) * (RAMP.length - 1);
  const low = Math.floor(place);
  return RAMP[low].map((v, k) => Math.round(v + (place - low) * (RAMP[low + 1][k] - v)));
}
const luminance = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b) / 255;
const hex = (colour) => [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
const place = (cell) => `layer ${cell.layer}, head ${cell.head}`;
function says(index) {
  const c = CELLS[index];
  const said = [];
  if (OUT) {
    said.push(`${percent(share(index), 1)} of the output's error, ${short(keysRead(index))} keys read`);
  }
  if (SINGLE) {
    said.push(`alone ${c.tokens} of ${DATA.context} tokens by ${SCHEMES[c.scheme][2]}`, `horizon ${short(c.horizon)}`,
      KINDS[c.kind][2]);
    if (c.varies) said.push("varies from text to text");
  }
  return `${place(c)}: ${said.join("; ")}`;
}

// A model with more layers than heads lies on its side where there is room for it.
const wide = matchMedia("(min-width: 900px)");
const across = () => ROWS > COLUMNS && wide.matches;
function layMap() {
  const sideways = across();
  const [rows, columns] = sideways ? [COLUMNS, ROWS] : [ROWS, COLUMNS];
  const map = byId("map");
  map.style.gridTemplateColumns = `28px repeat(${columns}, minmax(22px, 1fr))`;
  map.style.gridTemplateRows = `20px repeat(${rows}, auto)`;
  map.querySelectorAll("[data-layer]").forEach((node) => {
    const [layer, head] = [Number(node.dataset.layer), Number(node.dataset.head)];
    node.style.gridRow = (sideways ? head : layer) + 2;
    node.style.gridColumn = (sideways ? layer : head) + 2;
  });
  byId("map-way").textContent = sideways ? "layers across, heads downwards" : "layers downwards, heads across";
}
function buildMap() {
  const map = byId("map");
  const add = (node, layer, head) => {
    Object.assign(node.dataset, { layer, head });
    map.append(node);
  };
  DATA.layers.forEach((layer, row) => add(make("span", String(layer), "label"), row, -1));
  for (let head = 0; head < COLUMNS; head++) add(make("span", String(head), "label"), -1, head);
  CELLS.forEach((cell, index) => {
    const button = make("button");
    button.type = "button";
    button.dataset.index = index;
    button.addEventListener("click", () => choose(index));
    button.addEventListener("mouseenter", () => { byId("hint").textContent = says(index); });
    button.addEventListener("focus", () => { byId("hint").textContent = says(index); });
    add(button, Math.floor(index / COLUMNS), index % COLUMNS);
  });
  layMap();
  wide.addEventListener("change", layMap);
  map.addEventListener("keydown", (event) => {
    const from = Number(event.target.dataset.index);
    if (Number.isNaN(from)) return;
    let [row, column] = [Math.floor(from / COLUMNS), from % COLUMNS];
    const [down, right] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
      Home: [0, -Infinity], End: [0, Infinity] }[event.key] || [0, 0];
    if (!down && !right) return;
    const clip = (value, count) => Math.min(count - 1, Math.max(0, value));
    row = clip(row + (across() ? right : down), ROWS);
    column = clip(column + (across() ? down : right), COLUMNS);
    event.preventDefault();
    const buttons = map.querySelectorAll("button");
    const next = row * COLUMNS + column;
    buttons[from].tabIndex = -1;
    buttons[next].tabIndex = 0;
    buttons[next].focus();
  });
}

function paintMap() {
  const spec = QUANTITIES[quantity];
  const key = byId("key");
  key.replaceChildren();
  let colour;
  if (spec.value) {
    const scaled = CELLS.map((_, k) => (spec.log ? Math.log(Math.max(spec.value(k), 1e-3)) : spec.value(k)));
    const low = Math.min(...scaled);
    const high = Math.max(...scaled);
    colour = (index) => ramp((scaled[index] - low) / Math.max(high - low, 1e-9));
    const stripe = make("i", "", "ramp");
    stripe.style.background = `linear-gradient(90deg, ${RAMP.map((c) => `rgb(${c})`).join(",")})`;
    const name = spec.end ? (v) => spec.end(v, 1) : short;
    const ends = [low, high].map((v) => name(spec.log ? Math.exp(v) : v));
    key.append(make("span", `${spec.label}: ${ends[0]}`), stripe, make("span", ends[1]));
  } else {
    colour = (index) => hex(css(KINDS[CELLS[index].kind][0]));
    for (const [name, [variable, letter, meaning]] of Object.entries(KINDS)) {
      const count = CELLS.filter((c) => c.kind === name).length;
      if (!count) continue;
      const item = make("span");
      const box = make("i");
      box.style.background = css(variable);
      item.append(box, `${letter} ${meaning} (${count})`);
      key.append(item);
    }
  }
  byId("map").querySelectorAll("button").forEach((button, index) => {
    const rgb = colour(index);
    button.textContent = spec.text(index);
    button.style.background = `rgb(${rgb})`;
    button.style.color = luminance(rgb) > 0.52 ? "#000" : "#fff";
    button.setAttribute("aria-label", says(index));
    button.setAttribute("aria-pressed", index === chosen ? "true" : "false");
    button.tabIndex = index === Math.max(chosen, 0) ? 0 : -1;
    button.title = says(index);
  });
}

function buildChoices() {
  for (const [name, spec] of Object.entries(QUANTITIES)) {
    const label = make("label", undefined, "choice");
    const input = make("input");
    Object.assign(input, { type: "radio", name: "quantity", value: name, checked: name === quantity });
    input.addEventListener("change", () => { quantity = name; paintMap(); });
    label.append(input, make("span", spec.label));
    byId("quantity").append(label);
  }
}

const line = (name, series, variable, extra) => Object.assign({
  x: series.n, y: series.v, name, mode: "lines", line: { color: css(variable), width: 2 },
}, extra || {});
const vertical = (x, text, dash) => ({
  shape: { type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1,
    line: { color: css("--soft"), width: 1.5, dash } },
  note: { x, yref: "paper", y: 1, text, showarrow: false, xanchor: "left", yanchor: "top", xshift: 4,
    font: { size: 11.5, color: css("--soft") } },
});

function drawHead() {
  if (!SINGLE || !byId("heads").open) return; // a folded plot has no size
  const c = CELLS[chosen];
  byId("head-title").textContent = `Layer ${c.layer}, head ${c.head}: ${KINDS[c.kind][2]}`;
  byId("head-says").textContent = `${c.thinnable ? "Keep" : "Cannot be thinned by half: keep"} ${c.keep}.` +
    (c.varies ? " Varies from text to text: planned without one of its passages, the budget fails there; it has a margin for " +
      "that, but no certificate." : "");
  const facts = [
    ["certified tokens", `${c.tokens} of ${DATA.context}`], ["best scheme", SCHEMES[c.scheme][2]],
    ["horizon H", short(c.horizon)], ["spread of scores", short(c.std)],
    ["queries with only a few keys", percent(c.frozen)], ["effective tokens", short(c.effective)],
    ["largest weight on", `${SINGLE.tokens[c.sink]} (${percent(c.sinkWeight)})`],
    [`within ${short(SINGLE.epsilon)}, measured`, percent(c.promise, 1)],
  ];
  if (c.heldOut !== null) {
    facts.push(["needed, by passage", c.byText.join(", ")],
      ["planned without one", `${percent(c.heldOut)} of queries`]);
  }
  byId("facts").replaceChildren(...facts.map(([term, value]) => {
    const box = make("div");
    box.append(make("dt", term), make("dd", value));
    return box;
  }));
  drawError(c);
  drawSchemes(c);
  drawScores(c);
  drawTable(c);
  drawTokens(c);
}

function drawError(c) {
  const measured = c.curve.measured;
  const caps = { array: measured.e, color: css("--c2"), thickness: 1.5, width: 4 };
  plot("error-plot", [
    line("delta method", c.curve.delta, "--soft", { line: { color: css("--soft"), width: 1.6, dash: "dot" } }),
    line("exact law", c.curve.exact, "--c1"),
    { x: measured.n, y: measured.v, error_y: caps, name: "measured, ± 1 s.e.", mode: "markers",
      marker: { color: css("--c2"), size: 8 } },
  ], logAxis("tokens drawn, n", c.curve.exact.n),
  logAxis("relative error", [...c.curve.exact.v, ...c.curve.delta.v]));
  const rates = c.curve.rate;
  byId("rate-note").textContent = "Local slope of the exact law: " + rates.map(([n, r]) =>
    `−${r.toFixed(2)} at n = ${n}`).join(", ") + ". Where many keys share the weight it is −0.50.";
}

function drawSchemes(c) {
  const traces = Object.entries(SCHEMES).map(([name, [variable, symbol, label]]) => ({
    x: c.schemeCurves[name].n, y: c.schemeCurves[name].v.map((v) => Math.max(v, 1e-5)), name: plotText(label),
    mode: "lines+markers",
    line: { color: css(variable), width: name === c.scheme ? 3 : 1.6 },
    marker: { color: css(variable), symbol, size: name === c.scheme ? 8 : 6 },
  }));
  const wanted = { type: "line", xref: "paper", x0: 0, x1: 1, y0: SINGLE.epsilon, y1: SINGLE.epsilon,
    line: { color: css("--soft"), width: 1.5, dash: "dash" } };
  plot("scheme-plot", traces, logAxis("tokens kept", c.schemeCurves["top-k"].n),
    logAxis("relative error", [], { range: [-3.2, 1] }),
    { shapes: [wanted] });
}

function drawScores(c) {
  const bars = (series) => [{ type: "bar", x: series.n, y: series.v, marker: { color: css("--c1") },
    hoverinfo: "x", showlegend: false }];
  const edge = Math.sqrt(2 * Math.log(DATA.context));
  const marks = [vertical(edge / 2, "half", "dot"), vertical(edge, "√(2 log n)", "solid")];
  const widest = Math.max(edge * 1.25, ...c.scores.deviation.n) * 1.05;
  plot("deviation-plot", bars(c.scores.deviation), axis("spread of a query's scores",
    { range: [0, widest] }), axis("density of queries", { rangemode: "tozero" }),
    { shapes: marks.map((m) => m.shape), annotations: marks.map((m) => m.note), bargap: 0.04 });
  const x = c.scores.score.n;
  const grid = Array.from({ length: 80 }, (_, k) => x[0] + (k / 79) * (x[x.length - 1] - x[0]));
  const normal = grid.map((z) => Math.exp(-z * z / 2) / Math.sqrt(2 * Math.PI));
  const mark = vertical(edge, "√(2 log n)", "solid");
  plot("score-plot", [...bars(c.scores.score).map((t) => Object.assign(t, { name: "scores" })),
    { x: grid, y: normal, mode: "lines", name: "normal law", line: { color: css("--c2"), width: 2 } }],
  axis("score, in standard deviations"), logAxis("density", [], { range: [-4.5, 0.2] }),
  { shapes: [mark.shape], annotations: [mark.note], bargap: 0.04 });
}

function drawTable(c) {
  const head = make("tr");
  ["scheme", "certified", "typical", "10× context", "100× context"].forEach((t) => head.append(make("th", t)));
  const rows = Object.entries(c.schemes).map(([name, s]) => {
    const row = make("tr", undefined, name === c.scheme ? "best" : "");
    const long = (key) => {
      if (c.longer[key][name] === null) return "not extrapolated";
      const all = parseInt(key, 10) * DATA.context;
      return c.longer[key][name] >= all ? `all ${short(all)}` : `≈ ${short(c.longer[key][name])}`;
    };
    const over = `> ${DATA.context}`;
    [SCHEMES[name][2] + (name === c.scheme ? " (best)" : ""), s.certified === null ? over : String(s.certified),
      (s.typical === null ? over : String(s.typical)) + (s.typical_reliable ? "" : "*"),
      long("10x"), long("100x")].forEach((t) => row.append(make("td", t)));
    return row;
  });
  byId("scheme-table").replaceChildren(head, ...rows);
}

function drawTokens(c) {
  const total = c.influence.reduce((a, b) => a + b, 0) || 1;
  const order = c.influence.map((v, k) => [v, k]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 12);
  byId("tokens").replaceChildren(...order.map(([value, index]) => {
    const row = make("li");
    const bar = make("span", "", "bar");
    bar.style.width = `${(100 * value) / Math.max(order[0][0], 1)}%`;
    row.append(make("code", `${index}  ${SINGLE.tokens[index]}`), bar,
      make("span", percent(value / total, 1), "share"));
    return row;
  }));
  const accent = hex(css("--c1"));
  const largest = Math.max(...c.influence, 1);
  byId("passage").replaceChildren(...SINGLE.tokens.map((token, index) => {
    const piece = make("span", SINGLE.pieces[index]);
    const share = c.influence[index] / largest;
    if (share > 0.15) piece.style.background = `rgba(${accent}, ${(0.7 * share).toFixed(3)})`;
    piece.title = `${token}: ${percent(c.influence[index] / total, 2)}`;
    return piece;
  }));
}

function choose(index) {
  if (!SINGLE) return;
  chosen = index;
  paintMap();
  byId("heads").open = true;
  drawHead();
  const cell = CELLS[index];
  history.replaceState(null, "", `#layer-${cell.layer}-head-${cell.head}`);
}

buildChoices();
buildMap();
paintMap();
drawn.set("page", () => { paintMap(); drawHead(); });
if (SINGLE) {
  byId("heads").addEventListener("toggle", drawHead);
  const asked = /^#layer-(\d+)-head-(\d+)$/.exec(location.hash);
  const found = asked ? CELLS.findIndex((c) => c.layer === Number(asked[1]) && c.head === Number(asked[2])) : -1;
  if (found >= 0) choose(found);
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
