// View 2, Lookahead and oracle: every policy on one output, without running a model again.

import { emit, h, on } from "./dom.js";
import { slider } from "./controls.js";
import { ServerFigure } from "./plots.js";
import { ask } from "./server.js";
import { change, pair, settings } from "./settings.js";
import { Asker, StudyBar, guide, studyTiles } from "./study.js";
import { Trace } from "./trace.js";

const POLICIES = ["constant", "heuristic", "dynamic", "oracle"];

export class Explore {
  constructor(app) {
    this.app = app;
    this.state = { policy: "dynamic", lookahead: 8, threshold: 0.4, exit_layer: null };
    this.bar = new StudyBar({ drafter: () => this.drafter(), button: "explore.measure", onReady: (run) => this.#ready(run) });
    this.figures = { lookahead: new ServerFigure("explore-lookahead"), policies: new ServerFigure("explore-policies"), threshold: new ServerFigure("explore-threshold") };
    this.figures.lookahead.onHover = (point) => emit("iteration", point?.customdata ?? null);
    this.asker = new Asker("explore", (answer) => this.#take(answer));
    this.asker.failed = (error) => { this.bar.failure.textContent = error?.message ?? ""; };
    this.policy = h("div", { class: "sv-switch sv-wide", role: "group", tLabel: "explore.policy" },
      POLICIES.map((name) => h("button", { type: "button", "data-policy": name, t: `policy.${name}`, on: { click: () => this.#set({ policy: name }) } })));
    const own = (name, range) => slider(name, { range, get: () => this.state[name], set: (value) => this.#set({ [name]: value }), live: true });
    this.sliders = {
      lookahead: own("lookahead", { min: 1, max: 20, step: 1 }),
      threshold: own("threshold", { min: 0, max: 1, step: 0.05 }),
      exit_layer: own("exit_layer", { min: 1, max: 11, step: 1 }),
    };
    for (const [name, field] of Object.entries(this.sliders)) rename(field, `explore-${name}`);
    this.tiles = h("dl", { class: "sv-metrics sv-three-tiles" });
    this.play = h("button", { type: "button", class: "sv-chip", t: "explore.play", on: { click: () => this.#play() } });
    this.run = h("button", { type: "button", class: "sv-chip", t: "explore.run", on: { click: () => this.#run() } });
    this.results = h("div", { class: "sv-study" },
      h("div", { class: "sv-card sv-study-controls" }, this.policy, this.sliders.lookahead.node, this.sliders.threshold.node, this.sliders.exit_layer.node, this.tiles, h("div", { class: "sv-examples" }, this.play, this.run)),
      h("div", { class: "sv-study-figures" }, Object.values(this.figures).map((figure) => figure.node)));
    this.results.hidden = true;
    this.empty = h("p", { class: "sv-empty", t: "explore.empty" });
    this.node = h("div", {},
      h("div", { class: "sv-view-head" },
        guide("explore", [
          ["greedy", () => this.#try({ policy: "constant", lookahead: 20 })],
          ["careful", () => this.#try({ policy: "dynamic", lookahead: 20, threshold: 0.8 })],
          ["oracle", () => this.#try({ policy: "oracle" })],
        ]),
        h("div", { class: "sv-card" }, this.bar.node)),
      this.empty,
      this.results);
    on("theme", () => this.#ask());
    on("language", () => this.#ask());
  }

  drafter() {
    return pair().draft ? "assistant" : "early-exit";
  }

  shown() {
    for (const figure of Object.values(this.figures)) figure.redraw();
  }

  async #ready(run) {
    this.probed = { run, drafter: this.bar.job.request.drafter, layers: pair().layers };
    this.state.exit_layer ??= Math.max(1, Math.round(pair().layers / 3));
    this.sliders.exit_layer.control.max = Math.max(1, this.probed.layers - 1);
    this.results.hidden = false;
    this.empty.hidden = true;
    this.#refresh();
    await this.#ask();
  }

  #set(values) {
    Object.assign(this.state, values);
    this.#refresh();
    this.#ask();
  }

  /** Sets the controls; where nothing is measured yet, there would be nothing to see, so that comes first. */
  #try(values) {
    this.#set(values);
    if (!this.probed) this.bar.measure();
  }

  #refresh() {
    const { policy } = this.state;
    this.policy.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.policy === policy)));
    this.sliders.lookahead.node.hidden = policy === "oracle";
    this.sliders.threshold.node.hidden = policy !== "dynamic";
    this.sliders.exit_layer.node.hidden = this.probed?.drafter !== "early-exit";
    for (const field of Object.values(this.sliders)) field.refresh();
  }

  async #ask() {
    if (this.probed) await this.asker.ask({ run: this.probed.run, ...this.state });
  }

  async #take(answer) {
    studyTiles(this.tiles, answer.numbers);
    await Promise.all(Object.entries(answer.figures).map(([name, json]) => this.figures[name].take(json)));
    this.node.dataset.answers = Number(this.node.dataset.answers ?? 0) + 1;
  }

  /** Shows the simulated run on the stage of Watch. */
  async #play() {
    const { records } = await ask("simulated", { run: this.probed.run, ...this.state });
    const trace = new Trace();
    JSON.parse(records).forEach((record) => trace.add(record));
    this.app.stage(trace, { kind: "simulated" });
  }

  /** Runs the same settings for real. */
  #run() {
    const { policy, lookahead, threshold, exit_layer } = this.state;
    const early = this.probed.drafter === "early-exit";
    const method = early ? { constant: "early-exit" }[policy] ?? `early-exit-${policy}` : policy;
    change({ method, lookahead: policy === "oracle" ? null : lookahead, threshold: policy === "dynamic" ? threshold : settings.threshold, ...(early ? { exit_layer } : {}) });
    this.app.runNow();
  }
}

/** Sliders of several views share their words but not their ids. */
export function rename(field, id) {
  field.control.id = `sv-field-${id}`;
  field.error.id = `sv-error-${id}`;
  field.node.querySelector("label").htmlFor = field.control.id;
  return field;
}

