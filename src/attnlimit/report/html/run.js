"use strict";
// Figures described in Python, drawn in this page's colours.
// Shapes of groups, so that points differ in greyscale.
const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x"];
const DASH = { line: "solid", dashed: "dash", dotted: "dot" };
const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--ink"];
const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [229, 205, 45]];
// A colour means the same in all panels of a figure; what is neither named nor on a scale is grey.
const colourOf = (s) => {
  if (s.slot !== null) return css(COLOURS[s.slot]);
  if (s.shade === null) return css("--soft");
  const place = s.shade * (STOPS.length - 1.001), low = Math.floor(place);
  return `rgb(${STOPS[low].map((v, j) => Math.round(v + (place - low) * (STOPS[low + 1][j] - v)))})`;
};
function traces(panel) {
  return panel.series.map((s) => {
    const colour = colourOf(s), symbol = SYMBOLS[s.slot === null ? 0 : s.slot];
    const shared = { name: plotText(s.label || ""), showlegend: Boolean(s.label), legendgroup: String(s.group) };
    if (s.style === "band") {
      return Object.assign(shared, { x: [...s.x, ...[...s.x].reverse()],
        y: [...s.upper, ...[...s.lower].reverse()], fill: "toself", mode: "lines", hoverinfo: "skip",
        line: { width: 0 }, fillcolor: colour, opacity: 0.2 });
    }
    if (s.style === "points") {
      const bars = (sizes) => (sizes ? { array: sizes, color: colour, thickness: 1.2, width: 3 } : undefined);
      return Object.assign(shared, { x: s.x, y: s.y, error_y: bars(s.error), error_x: bars(s.x_error), mode: "markers",
        marker: { color: colour, size: s.beyond ? s.beyond.map((far) => (far ? 13 : 7)) : 7,
          symbol: s.beyond ? s.beyond.map((far) => (far ? `${symbol}-open-dot` : symbol)) : symbol } });
    }
    return Object.assign(shared, { x: s.x, y: s.y, mode: "lines",
      line: { color: colour, width: 2, dash: DASH[s.style] } });
  });
}
function drawFigures() {
  DATA.figures.forEach((figure, f) => figure.panels.forEach((panel, k) => {
    const scale = (kind, title, limits, values) => {
      const range = limits ? limits.map((v) => (kind === "log" ? Math.log10(v) : v)) : undefined;
      const extra = range ? { range } : {};
      return kind === "log" ? logAxis(plotText(title), values, extra) : axis(plotText(title), extra);
    };
    const all = (...keys) => panel.series.flatMap((s) => keys.flatMap((key) => s[key] || []));
    const listed = panel.names && axis("", { tickmode: "array", tickvals: panel.names.map((_, i) => i),
      ticktext: panel.names.map(plotText), range: [-0.6, panel.names.length - 0.4] });
    plot(`figure-${f}-${k}`, traces(panel),
      scale(panel.x_scale, panel.x_label, panel.x_limits, all("x")),
      listed || scale(panel.y_scale, panel.y_label, panel.y_limits, all("y", "lower", "upper")));
  }));
}
drawFigures();
drawn.set("figures", drawFigures);
