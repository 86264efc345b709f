// Building blocks: elements, texts, and the one bus on which the parts of the page speak to each other.
// Data reaches the document through textContent and attributes only, never as markup.

export const bus = new EventTarget();
export const emit = (name, detail) => bus.dispatchEvent(new CustomEvent(name, { detail }));
export const on = (name, handler) => bus.addEventListener(name, (event) => handler(event.detail));

const state = { language: "en", texts: { en: {} } };

export function setTexts(texts, language) {
  state.texts = texts;
  state.language = texts[language] ? language : "en";
}

export const language = () => state.language;

/** The text of a key in the chosen language, {names} filled in. A missing key shows itself. */
export function t(key, values = {}) {
  const text = state.texts[state.language][key] ?? state.texts.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export const has = (key) => key in state.texts.en;

/**
 * An element. `t`, `tLabel`, `tTitle`, `tPlaceholder` name catalogue keys and follow the language;
 * `on` holds listeners; everything else is a property (`class`) or an attribute.
 */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "t") node.dataset.t = value;
    else if (name === "tLabel") node.dataset.tLabel = value;
    else if (name === "tTitle") node.dataset.tTitle = value;
    else if (name === "tPlaceholder") node.dataset.tPlaceholder = value;
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  if (node.dataset.t || node.dataset.tLabel || node.dataset.tTitle || node.dataset.tPlaceholder) translate(node);
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

function translate(node) {
  if (node.dataset.t) node.textContent = t(node.dataset.t);
  if (node.dataset.tLabel) node.setAttribute("aria-label", t(node.dataset.tLabel));
  if (node.dataset.tTitle) node.title = t(node.dataset.tTitle);
  if (node.dataset.tPlaceholder) node.placeholder = t(node.dataset.tPlaceholder);
}

/** Puts every text below `root` into the chosen language; parts with computed texts listen for "language". */
export function retranslate(root, next) {
  setTexts(state.texts, next);
  root.querySelectorAll("[data-t],[data-t-label],[data-t-title],[data-t-placeholder]").forEach(translate);
  emit("language", next);
}

export function clear(node) {
  while (node.firstChild) node.firstChild.remove();
  return node;
}

// Marks that would change how their surroundings read (direction overrides, zero width, controls) are shown
// as visible signs: a token must not be able to rearrange the page.
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

function sign(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return `\u27e8${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

const LONGEST_SHOWN = 160;

/** A token's text as it is shown in running text: spaces stay spaces, everything invisible gets a sign. */
export function shown(text) {
  const cut = text.length > LONGEST_SHOWN ? text.slice(0, LONGEST_SHOWN) + "\u2026" : text;
  return cut.replace(CONTROL, sign).replace(/\t/g, "\u21e5");
}

/** A token's text as it is named in a list or a tooltip: spaces and line breaks visible too. */
export function named(text) {
  if (text === "") return "\u25cc";
  return shown(text).replace(/\n/g, "\u23ce").replace(/ /g, "\u2423");
}

export const percent = (value, digits = 0) => `${(100 * value).toFixed(digits)}\u202f%`;

/** A number with as many digits as carry meaning. */
export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return "\u2013";
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString(language());
  return value.toLocaleString(language(), { maximumFractionDigits: digits, minimumFractionDigits: Math.min(1, digits) });
}

export function seconds(value) {
  if (!Number.isFinite(value)) return "\u2013";
  return value < 1 ? `${number(1000 * value, value < 0.01 ? 2 : 0)}\u202fms` : `${number(value, 2)}\u202fs`;
}

/** A small drawing from SVG path data, in the colour of the text around it; no font has to carry it. */
export function icon(path, size = 16) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("width", size);
  svg.setAttribute("height", size);
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "sv-svg");
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  shape.setAttribute("d", path);
  svg.append(shape);
  return svg;
}

export const ICONS = {
  play: "M4 2.5v11l9.5-5.5z",
  pause: "M3.5 2.5h3.2v11H3.5zM9.3 2.5h3.2v11H9.3z",
  start: "M2.5 2.5h2v11h-2zM13.5 2.5v11L5.5 8z",
  end: "M11.5 2.5h2v11h-2zM2.5 2.5v11l8-5.5z",
  iteration_back: "M8 2.5v11L1 8zM15 2.5v11L8 8z",
  iteration_on: "M8 2.5v11L15 8zM1 2.5v11L8 8z",
  token_back: "M11 2.5v11L4 8z",
  token_on: "M5 2.5v11L12 8z",
  save: "M7 1.5h2v6h2.8L8 11.5 4.200 7.500H7zM2 13h12v1.600H2z",
  dark: "M9.500 1.600A6.500 6.500 0 1 0 14.400 9.800 5.200 5.200 0 0 1 9.500 1.600z",
  light: "M8 4.500a3.500 3.500 0 1 0 0 7 3.500 3.500 0 0 0 0-7zM7.300 0h1.400v3H7.300zM7.300 13h1.400v3H7.300zM0 7.300h3v1.400H0zM13 7.300h3v1.400h-3zM2 3l1-1 2 2-1 1zM11 12l1-1 2 2-1 1zM13 2l1 1-2 2-1-1zM4 11l1 1-2 2-1-1z",
};
