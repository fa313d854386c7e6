"use strict";
// Map of the heads: share of the predicted error, and keys read, at the target on the slider.
const RAMP = [[0, 32, 76], [49, 68, 107], [102, 105, 112], [149, 143, 120], [203, 186, 105], [255, 233, 69]];
const ROWS = DATA.layers.length;
const COLUMNS = DATA.heads;
const CELLS = DATA.layers.flatMap((layer) => (
  Array.from({ length: COLUMNS }, (_, head) => ({ layer, head }))));
const share = (index) => atLevel().headShares[index];
const keysRead = (index) => atLevel().headKeys[index];
const QUANTITIES = {
  share: { label: "share of the error", value: share, text: (k) => (100 * share(k)).toFixed(1), end: percent },
  keys: { label: "keys read", value: keysRead, text: (k) => keysRead(k).toFixed(0), end: short },
};
let quantity = "share";

function ramp(share) {
  const place = Math.min(0.9999, Math.max(0, share)) * (RAMP.length - 1);
  const low = Math.floor(place);
  return RAMP[low].map((v, k) => Math.round(v + (place - low) * (RAMP[low + 1][k] - v)));
}
const luminance = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b) / 255;
const says = (index) => `layer ${CELLS[index].layer}, head ${CELLS[index].head}: ` +
  `${percent(share(index), 1)} of the output's error, ${short(keysRead(index))} keys read`;

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
  const values = CELLS.map((_, k) => spec.value(k));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const stripe = make("i", "", "ramp");
  stripe.style.background = `linear-gradient(90deg, ${RAMP.map((c) => `rgb(${c})`).join(",")})`;
  key.replaceChildren(make("span", `${spec.label}: ${spec.end(low, 1)}`), stripe, make("span", spec.end(high, 1)));
  byId("map").querySelectorAll("button").forEach((button, index) => {
    const rgb = ramp((values[index] - low) / Math.max(high - low, 1e-9));
    button.textContent = spec.text(index);
    button.style.background = `rgb(${rgb})`;
    button.style.color = luminance(rgb) > 0.52 ? "#000" : "#fff";
    button.setAttribute("aria-label", says(index));
    button.tabIndex = index === 0 ? 0 : -1;
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

buildChoices();
buildMap();
paintMap();
drawn.set("page", paintMap);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
