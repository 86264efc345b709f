// View 3, Exit layers: what every layer would say, and where leaving early pays.

import { h, number, on, percent, t } from "./dom.js";
import { slider } from "./controls.js";
import { rename } from "./explore.js";
import { colour, line, marker } from "./look.js";
import { Figure, ServerFigure } from "./plots.js";
import { change, pair, setup } from "./settings.js";
import { Asker, StudyBar, guide, studyTiles } from "./study.js";

export class Layers {
  constructor(app) {
    this.app = app;
    this.state = { exit_layer: 4, lookahead: 6, threshold: 0.4 };
    this.bar = new StudyBar({ drafter: () => "early-exit", button: "layers.measure", onReady: (run, more) => this.#ready(run, more) });
    this.figures = {
      lens: new ServerFigure("layers-lens"),
      sweet_spot: new ServerFigure("layers-sweet-spot"),
      heat: new ServerFigure("layers-heat"),
      kvq: new ServerFigure("layers-kvq"),
    };
    this.compare = new Figure("compare", { height: 320, table: () => this.#compareTable() });
    this.compare.node.hidden = true;
    this.asker = new Asker("layers", (answer) => this.#take(answer));
    this.asker.failed = (error) => { this.bar.failure.textContent = error?.message ?? ""; };
    const own = (name, range) => rename(slider(name, { range, get: () => this.state[name], set: (value) => this.#set({ [name]: value }), live: true }), `layers-${name}`);
    this.sliders = {
      exit_layer: own("exit_layer", { min: 1, max: 11, step: 1 }),
      lookahead: own("lookahead", { min: 1, max: 20, step: 1 }),
      threshold: own("threshold", { min: 0, max: 1, step: 0.05 }),
    };
    this.tiles = h("dl", { class: "sv-metrics sv-three-tiles" });
    this.best = h("p", { class: "sv-small" });
    this.run = h("button", { type: "button", class: "sv-chip", t: "layers.run", on: { click: () => this.#run() } });
    this.twin = h("button", { type: "button", class: "sv-chip", t: "layers.twin", on: { click: () => this.bar.measure({ twin: true }) } });
    this.results = h("div", { class: "sv-study" },
      h("div", { class: "sv-card sv-study-controls" }, Object.values(this.sliders).map((field) => field.node), this.tiles, this.best, h("div", { class: "sv-examples" }, this.run, this.twin)),
      h("div", { class: "sv-study-figures" }, this.figures.lens.node, this.figures.sweet_spot.node, this.compare.node, this.figures.heat.node, this.figures.kvq.node));
    this.results.hidden = true;
    this.empty = h("p", { class: "sv-empty", t: "layers.empty" });
    this.node = h("div", {},
      h("div", { class: "sv-view-head" },
        guide("layers", [
          ["first", () => this.#try(() => 1)],
          ["late", () => this.#try(() => Math.max(1, pair().layers - 2))],
          ["best", () => this.#try(() => this.bestLayer)],
        ]),
        h("div", { class: "sv-card" }, this.bar.node)),
      this.empty,
      this.results);
    on("theme", () => this.#ask());
    on("language", () => this.#ask());
    on("settings", () => this.#refresh());
  }

  shown() {
    for (const figure of [...Object.values(this.figures), this.compare]) figure.redraw();
  }

  async #ready(run, more) {
    if (more.twin) this.twinRun = run;
    else {
      this.probed = run;
      this.twinRun = null;
      this.state.exit_layer = Math.min(this.state.exit_layer, pair().layers - 1);
    }
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

  /** Sets the exit layer; where nothing is measured yet, that comes first. */
  async #try(layer) {
    if (!this.probed && !(await this.bar.measure())) return;
    this.#set({ exit_layer: layer() });
  }

  #refresh() {
    this.sliders.exit_layer.control.max = Math.max(1, pair().layers - 1);
    for (const field of Object.values(this.sliders)) field.refresh();
    this.twin.hidden = !setup.boot.twins.includes(pair().target);
  }

  async #ask() {
    if (this.probed) await this.asker.ask({ run: this.probed, twin: this.twinRun, wide: this.results.clientWidth > 720, ...this.state });
  }

  async #take(answer) {
    studyTiles(this.tiles, answer.numbers);
    this.bestLayer = answer.best.exit_layer;
    this.best.textContent = t("layers.best", { layer: answer.best.exit_layer, speed: number(answer.best.speed), rate: percent(answer.best.acceptance) });
    this.comparison = answer.compare ?? null;
    this.compare.node.hidden = !this.comparison;
    await Promise.all(Object.entries(answer.figures).map(([name, json]) => this.figures[name].take(json)));
    if (this.comparison) await this.#drawCompare();
    this.node.dataset.answers = Number(this.node.dataset.answers ?? 0) + 1;
  }

  #drawCompare() {
    const { ours, other } = this.comparison;
    const looks = [[ours, "early"], [other, "other"]];
    const traces = looks.map(([model, look]) => ({
      type: "scatter", mode: "lines+markers", x: model.exit_layer, y: model.acceptance, name: model.name,
      line: { ...line(look), color: look === "other" ? colour("muted") : colour(look) }, marker: marker(look, 8, look === "other" ? { color: colour("muted") } : {}),
      hovertemplate: `%{y:.0%}<extra>${model.name}</extra>`,
    }));
    return this.compare.draw(traces, { margin: { l: 52, r: 10, t: 34, b: 44 }, xaxis: { title: { text: t("param.exit_layer") }, dtick: 1 }, yaxis: { range: [0, 1.03], tickformat: ".0%", title: { text: t("metric.acceptance") } }, legend: { orientation: "h", x: 0, xref: "paper", y: 1.02, yref: "paper", yanchor: "bottom" } });
  }

  #compareTable() {
    const { ours, other } = this.comparison;
    return {
      columns: [t("param.exit_layer"), `${t("metric.acceptance")}: ${ours.name}`, `${t("metric.acceptance")}: ${other.name}`],
      rows: ours.exit_layer.map((layer, i) => [layer, percent(ours.acceptance[i], 1), percent(other.acceptance[i] ?? NaN, 1)]),
    };
  }

  #run() {
    change({ method: "early-exit-dynamic", ...this.state });
    this.app.runNow();
  }
}
