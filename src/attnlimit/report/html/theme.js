"use strict";
// What every page shares: its data, its colours, and how a plot is drawn in them.
const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const make = (tag, text, className) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text; // never innerHTML: tokens may look like markup
  if (className) node.className = className;
  return node;
};
const short = (value, digits = 3) => {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(Number(value).toPrecision(digits)));
};
const percent = (value, digits = 0) => `${(100 * value).toFixed(digits)}%`;
const plotText = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const drawn = new Map(); // id -> function that draws it, to draw again in other colours

function axis(title, extra) {
  return Object.assign({
    title: { text: title, standoff: 8 }, gridcolor: css("--grid"), linecolor: css("--line"),
    zeroline: false, automargin: true, ticks: "outside", tickcolor: css("--line"),
  }, extra || {});
}
// Ticks at 1, 2 and 5 over a short range, at powers of ten over a long one.
function logAxis(title, values, extra) {
  const range = extra && extra.range;
  const found = range ? range.map((v) => 10 ** v) : values.filter((v) => v > 0);
  const low = Math.log10(found.reduce((a, b) => Math.min(a, b), Infinity));
  const high = Math.log10(found.reduce((a, b) => Math.max(a, b), 0));
  const steps = high - low < (innerWidth < 600 ? 1.6 : 2.6) ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((high - low) / 7));
  const ticks = [];
  for (let decade = Math.floor(low) - 1; decade <= Math.ceil(high) + 1; decade++) {
    if (steps.length > 1 || decade % every === 0) steps.forEach((s) => ticks.push(s * 10 ** decade));
  }
  const name = (v) => {
    if (v >= 1e-3 && v < 1e5) return String(Number(v.toPrecision(1)));
    const [digit, power] = v.toExponential(0).split("e").map(Number);
    return `${digit === 1 ? "" : `${digit}·`}10<sup>${power}</sup>`;
  };
  return axis(title, Object.assign(
    { type: "log", tickmode: "array", tickvals: ticks, ticktext: ticks.map(name), tickangle: 0 }, extra || {}));
}

function plot(id, traces, x, y, extra) {
  if (!window.Plotly) return undefined; // still being read: the page's own script comes first
  const layout = Object.assign({
    xaxis: x, yaxis: y, margin: { l: 8, r: 10, t: 8, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: css("--ink") },
    legend: { orientation: "h", y: -0.3, yanchor: "top", x: 0, font: { size: 12 } }, hovermode: "closest",
    hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--line"), font: { color: css("--ink") } },
  }, extra || {});
  return Plotly.react(id, traces, layout, { displayModeBar: false, responsive: true });
}
function redraw() { drawn.forEach((draw) => draw()); }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => document.querySelectorAll(".canvas").forEach((node) => {
  if (node.data) Plotly.Plots.resize(node);
}));
