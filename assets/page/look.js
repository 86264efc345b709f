// Colours, templates and the choice of light or dark, all from the table that the Python figures use.

import { emit } from "./dom.js";

export const look = { meanings: {}, templates: {}, neutrals: {}, plotly: "" };

let chosen = "light";

export const theme = () => chosen;

/** Hex colour of a meaning ("accepted", "draft", …) or of a neutral ("ink", "grid", …). */
export function colour(name) {
  const entry = look.meanings[name] ?? look.neutrals[name];
  return entry[chosen];
}

/** Plotly marker of a meaning: its colour and its symbol. */
export function marker(name, size = 8, more = {}) {
  const { symbol } = look.meanings[name];
  return { color: colour(name), symbol, size, line: { width: symbol.endsWith("open") ? 2 : 0, color: colour(name) }, ...more };
}

/** Plotly bar filling of a meaning: its colour, with its pattern. */
export function bar(name) {
  const { pattern } = look.meanings[name];
  const filling = { color: colour(name), line: { width: 1, color: colour(name) } };
  if (!pattern) return filling;
  return { ...filling, color: tint(name), pattern: { shape: pattern, fgcolor: colour(name), bgcolor: tint(name), size: 6, solidity: 0.35 } };
}

export function line(name, width = 2) {
  return { color: colour(name), dash: look.meanings[name].dash, width };
}

function tint(name, share = 0.3) {
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const ground = parts(look.neutrals.surface[chosen]);
  const mixed = parts(colour(name)).map((value, i) => Math.round(ground[i] + (value - ground[i]) * share));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

export function setTheme(name) {
  chosen = name === "dark" ? "dark" : "light";
  document.documentElement.dataset.svTheme = chosen;
  emit("theme", chosen);
}
