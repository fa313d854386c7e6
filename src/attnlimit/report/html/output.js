"use strict";
// The model's answer: a target on a slider, the plan that keeps it, and what every scheme costs.
const OUT = DATA.output;
const LOOKS = {
  "threshold": ["--c1", "circle", 3], "top-k + sample": ["--c4", "triangle-up", 1.8],
  "top-p": ["--c3", "diamond", 1.8], "top-k": ["--c2", "square", 1.8],
  "sinks + recent": ["--c5", "x", 1.8], "bound": ["--soft", "circle", 1.8],
};
let level = OUT.chosen;
const unit = OUT.unit;
const atLevel = () => OUT.levels[level];
function ruleOf(sampler) {
  if (sampler === null) return "a size for each head";
  const [kind, size] = sampler.split(":");
  return kind === "threshold" ? `threshold, c = ${short(Number(size))}` : sampler;
}

function drawLevel() {
  const now = atLevel();
  const kept = OUT.measure === "cosine_loss" ? `cosine ${Number((1 - now.target).toPrecision(8))}`
    : `${short(now.target)}${unit}`;
  byId("target-value").textContent = short(now.target);
  byId("target").setAttribute("aria-valuetext", `${short(now.target)}${unit}`);
  const says = now.use
    ? `a decoded token of ${OUT.model} reads ${now.use.read}, and the cache holds ${now.use.stored}.`
    : `a query of ${OUT.model} reads ${short(now.keys)} of ${short(now.visible, 4)} keys: ` +
      `${percent(now.keys / now.visible, now.keys / now.visible < 0.1 ? 1 : 0)} of them.`;
  byId("target-says").textContent = `For ${kept}, ${says}` +
    (now.trusted ? "" : " This prediction is not trusted: measure it.");
  const facts = [
    now.use ? ["cache", now.use.stored] : ["keys read", `${short(now.keys)} of ${short(now.visible, 4)}`],
    ["predicted", `${short(now.predicted, 2)} ± ${short(now.stderr, 1)}${unit}`],
    ["nine of ten other passages below", `${short(now.next, 2)}${unit}`],
    ["rule for every head", ruleOf(now.sampler)],
  ];
  byId("target-facts").replaceChildren(...facts.map(([term, value]) => {
    const box = make("div");
    box.append(make("dt", term), make("dd", value));
    return box;
  }));
  byId("target-bars").replaceChildren(...now.bars.map(({ name, share, text }) => {
    const row = make("li");
    const bar = make("span", "", "bar");
    bar.style.width = `${Math.max(0.5, 100 * Math.min(1, share))}%`;
    const track = make("span", "", "track");
    track.append(bar);
    row.append(make("span", name), track, make("span", `${percent(share, share < 0.1 ? 1 : 0)} · ${text}`, "share"));
    return row;
  }));
  byId("target-long").textContent = now.long;
  byId("target-command").textContent = `${DATA.command} ${now.option}`;
}

function drawCurve() {
  const now = atLevel();
  const traces = [];
  OUT.schemes.forEach(({ name, label, predicted, measured }) => {
    const [variable, symbol, width] = LOOKS[name];
    const colour = css(variable);
    const fixed = predicted.x.length === 0;
    const hover = `%{x:.3g} keys: %{y:.2g}${unit}`;
    if (!fixed) {
      traces.push({ x: predicted.x, y: predicted.y, name: plotText(label), legendgroup: name, mode: "lines",
        line: { color: colour, width, dash: name === "bound" ? "dot" : "solid" },
        hovertemplate: `${plotText(name)}, predicted<br>${hover}<extra></extra>` });
    }
    if (measured.x.length) {
      traces.push({ x: measured.x, y: measured.y, name: plotText(label), legendgroup: name, showlegend: fixed,
        mode: fixed ? "lines+markers" : "markers", text: measured.sampler.map(plotText),
        line: { color: colour, width }, marker: { color: colour, symbol, size: name === "threshold" ? 10 : 8 },
        error_y: fixed ? undefined : { type: "data", array: measured.e, color: colour, thickness: 1.6, width: 4 },
        hovertemplate: `%{text}, measured<br>${hover}<extra></extra>` });
    }
  });
  traces.push({ x: [now.keys], y: [now.predicted], name: "this plan", mode: "markers",
    marker: { symbol: "star", size: 17, color: css("--ink"), line: { color: css("--paper"), width: 1.5 } },
    hovertemplate: `the plan<br>%{x:.3g} keys: %{y:.2g}${unit}<extra></extra>` });
  const xs = traces.flatMap((trace) => trace.x);
  const top = Math.max(...traces.flatMap((trace) => trace.y));
  const low = Math.max(OUT.levels[0].target / 3, Math.min(...traces.flatMap((trace) => trace.y)));
  const shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: now.target, y1: now.target,
    line: { color: css("--ink"), width: 1.5, dash: "dash" } }];
  const annotations = [{ xref: "paper", x: 1, y: Math.log10(now.target), text: `target ${short(now.target)}`,
    showarrow: false, xanchor: "right", yanchor: "bottom", font: { size: 12 } }];
  const seen = xs.filter((x, i) => x > 0);
  const ends = [Math.min(...seen), Math.max(...seen)].map(Math.log10);
  const narrow = innerWidth < 600;
  plot("output-plot", traces,
    logAxis("keys read by a query", [], { range: [ends[0] - 0.06, ends[1] + 0.06] }),
    logAxis(narrow ? OUT.word.replace(" of the", "<br>of the") : OUT.word, [],
      { range: [Math.log10(low) - 0.1, Math.log10(top) + 0.15] }),
    { shapes, annotations, legend: { orientation: narrow ? "h" : "v", x: narrow ? 0 : 1.02,
      y: narrow ? -0.22 : 1, yanchor: "top", font: { size: 12 } } });
}

async function copyText(node, button) {
  try {
    await navigator.clipboard.writeText(node.textContent);
  } catch (error) {
    const range = document.createRange();
    range.selectNodeContents(node);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    if (!document.execCommand("copy")) return; // it is selected at least
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}

document.querySelectorAll(".command").forEach((box) => {
  const button = make("button", "copy", "copy screen");
  button.type = "button";
  button.setAttribute("aria-label", "copy this command");
  button.addEventListener("click", () => copyText(box.querySelector("code"), button));
  box.append(button);
});

byId("target").addEventListener("input", (event) => {
  level = Number(event.target.value);
  drawLevel();
  drawCurve();
  paintMap();
});
byId("target").value = level;
drawLevel();
drawn.set("output", drawCurve);
