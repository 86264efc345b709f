// What the visitor has set: the model of every form on the page, and what a link carries.

import { emit } from "./dom.js";

export const PARAMETERS = ["lookahead", "threshold", "exit_layer", "ngram"];

// Ranges of the sliders. The server checks for itself; these only make the controls.
export const RANGES = {
  lookahead: { min: 1, max: 32, step: 1 },
  threshold: { min: 0, max: 1, step: 0.05 },
  exit_layer: { min: 1, max: 11, step: 1 },
  ngram: { min: 1, max: 5, step: 1 },
  limit: { min: 8, max: 256, step: 8 },
  temperature: { min: 0, max: 1.5, step: 0.1 },
};

export const setup = { boot: null };

const DEFAULTS = { pair: "", method: "", prompt: "", limit: 96, temperature: 0, top_k: null, top_p: null, seed: 0, chat: true };

export const settings = { ...DEFAULTS };

export const spec = (name = settings.method) => setup.boot.methods[name];

export const pair = (name = settings.pair) => setup.boot.pairs.find((one) => one.name === name) ?? setup.boot.pairs[0];

/** Methods that this pair can run: a draft model, or layers that can be left early. */
export function methodsOf(one = pair()) {
  return Object.keys(setup.boot.methods).filter((name) => {
    const { drafter } = setup.boot.methods[name];
    if (drafter === "assistant") return Boolean(one.draft);
    if (drafter === "early-exit") return one.layers > 1;
    return true;
  });
}

export function defaultFor(name, method = settings.method) {
  if (name === "exit_layer") return pair().exit_layer ?? Math.max(1, Math.round(pair().layers / 3));
  return pair().settings?.[method]?.[name] ?? spec(method)?.defaults[name] ?? null;
}

/** Changes settings; a new pair or method brings its own defaults for what was not named along with it. */
export function change(values, why = "form") {
  const before = { ...settings };
  Object.assign(settings, values);
  if (!pair()) return;
  if (!setup.boot.pairs.some((one) => one.name === settings.pair)) settings.pair = setup.boot.pairs[0].name;
  const possible = methodsOf();
  if (!possible.includes(settings.method)) {
    settings.method = ["dynamic", "early-exit-dynamic", "prompt-lookup"].find((name) => possible.includes(name)) ?? possible[0];
  }
  if (settings.method !== before.method || settings.pair !== before.pair) {
    for (const name of PARAMETERS) {
      if (!(name in values)) settings[name] = spec().parameters.includes(name) ? defaultFor(name) : null;
    }
  }
  emit("settings", why);
}

/** The request that the server gets: only what applies. */
export function request() {
  const asked = { pair: settings.pair, method: settings.method, prompt: settings.prompt, limit: settings.limit, chat: settings.chat };
  for (const name of spec().parameters) asked[name] = settings[name];
  asked.temperature = settings.temperature;
  if (settings.temperature > 0) Object.assign(asked, { top_k: settings.top_k, top_p: settings.top_p, seed: settings.seed });
  return asked;
}

const NUMBERS = ["lookahead", "threshold", "exit_layer", "ngram", "limit", "temperature", "top_k", "top_p", "seed"];

/** Settings out of a link. Anything that is no number where one is needed is left out. */
export function fromQuery(query) {
  const found = {};
  for (const name of ["pair", "method", "prompt"]) if (query.has(name)) found[name] = query.get(name).slice(0, 20000);
  for (const name of NUMBERS) {
    const value = query.has(name) && query.get(name).trim() !== "" ? Number(query.get(name)) : NaN;
    if (Number.isFinite(value)) found[name] = value;
  }
  if (query.has("chat")) found.chat = query.get("chat") !== "0";
  return found;
}

/** The query of a link that brings another visitor to the same place. */
export function toQuery(more = {}) {
  const query = new URLSearchParams();
  const asked = request();
  for (const [name, value] of Object.entries(asked)) {
    if (value === null || value === undefined) continue;
    if (name === "chat") {
      if (!value) query.set("chat", "0");
    } else query.set(name, value);
  }
  for (const [name, value] of Object.entries(more)) if (value !== null && value !== undefined && value !== "") query.set(name, value);
  return query;
}
