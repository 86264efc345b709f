// The form of the Watch view: what to run. Only what applies is shown; errors stand beside their field.

import { clear, h, on, t } from "./dom.js";
import { ask } from "./server.js";
import { RANGES, change, methodsOf, pair, settings, setup, spec } from "./settings.js";

const GROUPS = [
  ["assistant", ["constant", "heuristic", "dynamic", "oracle"]],
  ["early-exit", ["early-exit", "early-exit-heuristic", "early-exit-dynamic", "early-exit-oracle"]],
  ["prompt-lookup", ["prompt-lookup"]],
  ["none", ["autoregressive"]],
];

/** A labelled control with a place for its error. */
export class Field {
  constructor(name, control, { note = null, output = null } = {}) {
    this.name = name;
    this.control = control;
    control.id = `sv-field-${name}`;
    control.dataset.field = name;
    this.error = h("p", { class: "sv-error", id: `sv-error-${name}`, role: "alert" });
    this.error.hidden = true;
    this.node = h("div", { class: "sv-field", "data-control": name },
      h("div", { class: "sv-label-row" }, h("label", { for: control.id, t: `param.${name}` }), output),
      control,
      note && h("p", { class: "sv-small sv-muted", t: note }),
      this.error);
  }

  fail(message) {
    this.error.textContent = message ?? "";
    this.error.hidden = !message;
    if (message) {
      this.control.setAttribute("aria-invalid", "true");
      this.control.setAttribute("aria-describedby", this.error.id);
    } else {
      this.control.removeAttribute("aria-invalid");
      this.control.removeAttribute("aria-describedby");
    }
  }
}

export function slider(name, { range = RANGES[name], get = () => settings[name], set = (value) => change({ [name]: value }), note = null, live = false } = {}) {
  const output = h("output", { class: "sv-output" });
  const show = (value) => { output.textContent = value === null || value === undefined ? "" : String(value); };
  const input = h("input", { type: "range", ...range, on: {
    input: () => { show(input.value); if (live) set(Number(input.value)); },
    change: () => (live && get() === Number(input.value)) || set(Number(input.value)),
  } });
  const field = new Field(name, input, { output, note });
  field.refresh = () => {
    const value = get();
    if (value === null || value === undefined) return;
    if (value > Number(input.max)) input.max = value; // a link may ask for more than the slider offers
    if (document.activeElement !== input || Number(input.value) !== value) input.value = value;
    show(value);
  };
  return field;
}

function numberField(name, attributes) {
  const input = h("input", { type: "number", ...attributes, on: { change: () => change({ [name]: input.value.trim() === "" ? null : Number(input.value) }) } });
  const field = new Field(name, input);
  field.refresh = () => { input.value = settings[name] ?? ""; };
  return field;
}

export class Controls {
  constructor({ run, stop }) {
    this.fields = {
      pair: this.#pair(),
      prompt: this.#prompt(),
      method: this.#method(),
      lookahead: slider("lookahead", { note: "param.lookahead.note" }),
      threshold: slider("threshold", { note: "param.threshold.note" }),
      exit_layer: slider("exit_layer", { note: "param.exit_layer.note" }),
      ngram: slider("ngram", { note: "param.ngram.note" }),
      limit: slider("limit"),
      temperature: slider("temperature", { note: "param.temperature.note" }),
      top_k: numberField("top_k", { min: 1, step: 1, tPlaceholder: "param.all" }),
      top_p: numberField("top_p", { min: 0.01, max: 1, step: 0.01, tPlaceholder: "param.all" }),
      seed: numberField("seed", { step: 1 }),
      chat: this.#chat(),
    };
    const f = this.fields;
    this.summary = h("p", { class: "sv-small sv-muted sv-method-note" });
    f.method.node.append(this.summary);
    this.examples = h("div", { class: "sv-examples", "data-control": "examples" });
    f.prompt.node.append(this.examples);
    this.button = h("button", { type: "submit", class: "sv-run", t: "run.start", "data-do": "run" });
    this.stopButton = h("button", { type: "button", class: "sv-run sv-stop", t: "run.stop", "data-do": "stop", on: { click: stop } });
    this.progress = h("progress", { max: 1, value: 0, tLabel: "run.progress" });
    this.status = h("p", { class: "sv-status sv-small", role: "status" });
    this.failure = h("p", { class: "sv-error", role: "alert" });
    this.more = h("details", { class: "sv-details" }, h("summary", { t: "controls.more" }),
      f.limit.node, f.temperature.node, h("div", { class: "sv-three" }, f.top_k.node, f.top_p.node, f.seed.node), f.chat.node);
    this.node = h("form", { class: "sv-card sv-controls", novalidate: true, tLabel: "controls.label", on: { submit: (event) => { event.preventDefault(); run(); } } },
      h("h2", { t: "controls.title" }),
      f.prompt.node, f.pair.node, f.method.node,
      f.exit_layer.node, f.lookahead.node, f.threshold.node, f.ngram.node,
      this.more,
      h("div", { class: "sv-run-row" }, this.button, this.stopButton),
      this.progress, this.status, this.failure);
    this.setRunning(false);
    this.say("");
    on("settings", () => this.refresh());
    on("language", () => this.refresh());
    this.refresh();
  }

  #pair() {
    const select = h("select", { on: { change: () => change({ pair: select.value }) } });
    const field = new Field("pair", select);
    field.refresh = () => {
      clear(select).append(...setup.boot.pairs.map((one) => h("option", { value: one.name, text: pairTitle(one) })));
      select.value = settings.pair;
    };
    if (setup.boot.typed) field.node.append(this.#otherModel(field));
    return field;
  }

  /** A target and a draft model by name, where the page is its visitor's own. */
  #otherModel(field) {
    const target = h("input", { type: "text", spellcheck: "false", tLabel: "pair.target", tPlaceholder: "pair.target" });
    const draft = h("input", { type: "text", spellcheck: "false", tLabel: "pair.draft", tPlaceholder: "pair.draft" });
    const use = async () => {
      field.fail(null);
      const names = [target, draft].map((input) => input.value.trim()).filter(Boolean);
      try {
        const found = (await ask("typed", { pair: names.join(" + ") })).pair;
        setup.boot.pairs = [...setup.boot.pairs.filter((one) => one.name !== found.name), found];
        change({ pair: found.name });
      } catch (error) {
        field.fail(error.message || t("error.lost"));
      }
    };
    for (const input of [target, draft]) {
      input.addEventListener("keydown", (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault(); // the form would run
        use();
      });
    }
    const button = h("button", { type: "button", class: "sv-chip", t: "pair.use", "data-do": "use-model", on: { click: use } });
    return h("details", { class: "sv-details sv-other-model" }, h("summary", { t: "pair.other" }), target, draft, button);
  }

  #method() {
    const select = h("select", { on: { change: () => change({ method: select.value }) } });
    const field = new Field("method", select);
    field.refresh = () => {
      const possible = methodsOf();
      clear(select);
      for (const [drafter, names] of GROUPS) {
        const here = names.filter((name) => possible.includes(name));
        if (here.length) select.append(h("optgroup", { label: t(`drafter.${drafter}`) }, here.map((name) => h("option", { value: name, text: t(`method.${name}`) }))));
      }
      select.value = settings.method;
    };
    return field;
  }

  #prompt() {
    const area = h("textarea", { rows: 4, spellcheck: "false", maxlength: setup.boot.limits.prompt, tPlaceholder: "prompt.placeholder", on: { input: () => { settings.prompt = area.value; field.fail(null); } } });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.node.requestSubmit();
    });
    const field = new Field("prompt", area);
    field.refresh = () => { if (area.value !== settings.prompt) area.value = settings.prompt; };
    return field;
  }

  #chat() {
    const box = h("input", { type: "checkbox", on: { change: () => change({ chat: box.checked }) } });
    const field = new Field("chat", box, { note: "param.chat.note" });
    field.node.classList.add("sv-check");
    field.refresh = () => { box.checked = settings.chat; };
    return field;
  }

  refresh() {
    const one = pair();
    const wanted = spec().parameters;
    this.fields.exit_layer.control.max = Math.max(1, one.layers - 1);
    for (const [name, field] of Object.entries(this.fields)) {
      if (["lookahead", "threshold", "exit_layer", "ngram"].includes(name)) field.node.hidden = !wanted.includes(name);
      field.refresh();
    }
    for (const name of ["top_k", "top_p", "seed"]) this.fields[name].node.hidden = !(settings.temperature > 0);
    this.fields.chat.node.hidden = !one.chat;
    this.summary.textContent = t(`method.${settings.method}.note`);
    this.#showExamples(one);
  }

  #showExamples(one) {
    clear(this.examples);
    for (const [task, text] of Object.entries(setup.boot.examples[one.name] ?? setup.boot.examples.default)) {
      this.examples.append(h("button", { type: "button", class: "sv-chip", t: `task.${task}`, on: { click: () => { this.fields.prompt.fail(null); change({ prompt: text }); } } }));
    }
  }

  setRunning(running) {
    this.running = running;
    this.button.hidden = running;
    this.stopButton.hidden = !running;
    if (!running) this.progress.hidden = true;
  }

  say(text, share = null) {
    this.status.textContent = text;
    this.progress.hidden = share === null;
    if (share !== null && Number.isFinite(share)) this.progress.value = share;
    else this.progress.removeAttribute("value");
  }

  /** Shows a refusal where it belongs; opens what hides the field. */
  fail(error) {
    this.failure.textContent = "";
    for (const field of Object.values(this.fields)) field.fail(null);
    if (!error) return;
    const field = this.fields[error.field];
    if (!field || field.node.hidden || field.node.classList.contains("sv-gone")) {
      this.failure.textContent = error.message;
      return;
    }
    if (this.more.contains(field.node)) this.more.open = true;
    field.fail(error.message);
    field.control.focus();
  }
}

export function pairTitle(one) {
  const size = one.fetch_bytes ? ` (${t("pair.fetch", { size: Math.round(one.fetch_bytes / 1e6) })})` : "";
  return `${one.title}${size}`;
}
