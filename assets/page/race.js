// View 4, Race: several methods on one prompt, run one after another, replayed side by side on one clock.

import { ICONS, clear, h, icon, number, on, percent, seconds, shown, t } from "./dom.js";
import { colour } from "./look.js";
import { Figure } from "./plots.js";
import { Job, progressOf } from "./server.js";
import { methodsOf, pair, settings, setup } from "./settings.js";
import { guide } from "./study.js";
import { Trace } from "./trace.js";
import { describe } from "./stage.js";

const MOST = 6;
const WATCH_SECONDS = 10; // the slowest lane takes about this long to replay

export class Race {
  constructor(app) {
    this.app = app;
    this.lanes = [];
    this.boxes = h("div", { class: "sv-racers" });
    this.about = h("p", { class: "sv-small sv-muted sv-about" });
    this.button = h("button", { type: "button", class: "sv-run sv-narrow", t: "race.start", "data-do": "race", on: { click: () => this.run() } });
    this.stopButton = h("button", { type: "button", class: "sv-run sv-stop sv-narrow", t: "run.stop", on: { click: () => this.job?.stop() } });
    this.stopButton.hidden = true;
    this.status = h("p", { class: "sv-small sv-status", role: "status" });
    this.failure = h("p", { class: "sv-error", role: "alert" });
    this.track = h("div", { class: "sv-track-lanes" });
    this.again = h("button", { type: "button", class: "sv-icon sv-primary", tLabel: "race.again", tTitle: "race.again", "data-do": "again", on: { click: () => this.replay() } }, icon(ICONS.play));
    this.clock = h("span", { class: "sv-small sv-muted" });
    this.verdict = h("p", { class: "sv-small" });
    this.chart = new Figure("race", { height: 260, table: () => this.#table() });
    this.results = h("div", { class: "sv-card sv-race" }, h("div", { class: "sv-transport" }, this.again, this.clock), this.track, this.verdict, h("div", {}, this.chart.node));
    this.results.hidden = true;
    this.node = h("div", {},
      h("div", { class: "sv-view-head" },
        guide("race", [
          ["policies", () => this.#choose(["autoregressive", "constant", "heuristic", "dynamic", "oracle"])],
          ["drafters", () => this.#choose(["autoregressive", "dynamic", "early-exit-dynamic", "prompt-lookup"])],
        ]),
        h("div", { class: "sv-card" }, this.about, this.boxes, h("div", { class: "sv-run-row" }, this.button, this.stopButton), this.status, this.failure)),
      this.results);
    on("settings", () => this.#refresh());
    on("language", () => { this.#refresh(); this.#lanes(); this.#draw(); });
    on("theme", () => this.#chart());
    on("plotly", () => this.#chart());
    this.chosen = null;
    this.#refresh();
  }

  shown() {
    this.chart.redraw();
  }

  #choose(names) {
    const possible = methodsOf();
    this.chosen = new Set(names.filter((name) => possible.includes(name)));
    this.#refresh();
    this.run();
  }

  #refresh() {
    const possible = methodsOf();
    this.chosen ??= new Set(["autoregressive", "constant", "dynamic", "early-exit-dynamic", "prompt-lookup"]);
    this.about.textContent = t("study.about", { models: pair().title, prompt: settings.prompt.slice(0, 90).replace(/\s+/g, " "), limit: settings.limit });
    clear(this.boxes).append(...possible.map((name) => {
      const box = h("input", { type: "checkbox", value: name, on: { change: () => { box.checked ? this.chosen.add(name) : this.chosen.delete(name); } } });
      box.checked = this.chosen.has(name);
      return h("label", { class: "sv-racer" }, box, h("span", { text: t(`method.${name}`) }));
    }));
  }

  async run() {
    if (this.job) return;
    this.failure.textContent = "";
    const names = methodsOf().filter((name) => this.chosen.has(name));
    if (names.length < 2 || names.length > MOST) {
      this.failure.textContent = t("race.choose", { most: MOST });
      return;
    }
    const methods = names.map((name) => ({ method: name, ...Object.fromEntries(setup.boot.methods[name].parameters.map((key) => [key, name === settings.method ? settings[key] : null])) }));
    this.job = new Job("race", { pair: settings.pair, prompt: settings.prompt, limit: settings.limit, chat: settings.chat, temperature: settings.temperature, methods });
    this.button.hidden = true;
    this.stopButton.hidden = false;
    this.lanes = [];
    try {
      const end = await this.job.run({
        onRecords: (records) => {
          for (const record of records) {
            if (record.kind === "lane") this.lanes.push({ method: record.method, trace: new Trace() });
            else this.lanes.at(-1).trace.add(record);
          }
          this.results.hidden = false;
          this.#lanes();
          this.time = Infinity;
          this.#draw();
        },
        onStatus: ({ state, waiting, progress }) => {
          if (state === "waiting") this.status.textContent = t(waiting > 0 ? "run.waiting" : "run.starting", { n: waiting });
          else if (state === "loading") this.status.textContent = progressOf(progress).text;
          else if (this.lanes.length) this.status.textContent = t("race.running", { n: this.lanes.length, all: names.length, method: t(`method.${this.lanes.at(-1).method.name}`) });
        },
      });
      this.status.textContent = end.state === "done" ? t("race.done") : t("run.stopped");
      this.check = end.check;
      this.lanes = this.lanes.filter((lane) => lane.trace.footer);
      this.#lanes();
      if (this.lanes.length) this.replay();
      const base = speedOf(this.lanes.find((lane) => lane.method.name === "autoregressive"));
      this.app.measured(this.lanes.map((lane) => ({ pair: this.job.request.pair, ...lane, check: { speedup: base && lane.method.name !== "autoregressive" ? speedOf(lane) / base : null } })));
    } catch (error) {
      this.status.textContent = "";
      this.failure.textContent = error.message || t("error.lost");
    } finally {
      this.job = null;
      this.button.hidden = false;
      this.stopButton.hidden = true;
    }
  }

  get longest() {
    return Math.max(0.001, ...this.lanes.map((lane) => lane.trace.footer?.seconds ?? lane.trace.duration));
  }

  replay() {
    cancelAnimationFrame(this.frame);
    const factor = Math.min(1, this.longest / WATCH_SECONDS);
    const began = performance.now();
    const step = (now) => {
      this.time = ((now - began) / 1000) * factor;
      this.#draw();
      if (this.time < this.longest) this.frame = requestAnimationFrame(step);
      else this.#chart();
    };
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.time = this.longest;
      this.#draw();
      this.#chart();
    } else this.frame = requestAnimationFrame(step);
  }

  #lanes() {
    if (this.track.childElementCount === this.lanes.length && this.track.dataset.language === document.documentElement.lang) return;
    this.track.dataset.language = document.documentElement.lang;
    clear(this.track);
    for (const lane of this.lanes) {
      lane.bar = h("span", { class: "sv-lane-fill" });
      lane.text = h("p", { class: "sv-lane-text" });
      lane.count = h("span", { class: "sv-lane-count" });
      this.track.append(h("div", { class: "sv-lane", "data-lane": lane.method.name },
        h("div", { class: "sv-lane-head" }, h("strong", { text: describe(lane.method) }), lane.count),
        h("div", { class: "sv-lane-bar" }, lane.bar), lane.text));
    }
    this.#verdict();
  }

  #verdict() {
    this.verdict.textContent = this.check ? t(this.check.kind, this.check) : "";
  }

  /** Each lane as it stood at this moment of the common clock. */
  #draw() {
    const all = Math.max(1, ...this.lanes.map((lane) => lane.trace.totals.at(-1)?.emitted ?? 0));
    for (const lane of this.lanes) {
      const { trace } = lane;
      // The loop's own time is spread evenly, so that a lane ends when its run ended.
      const stretch = trace.footer && trace.duration ? trace.footer.seconds / trace.duration : 1;
      const done = trace.totals.findLastIndex((sums) => sums.seconds * stretch <= this.time + 1e-9);
      const emitted = done < 0 ? 0 : trace.totals[done].emitted;
      lane.bar.style.width = `${(100 * emitted) / all}%`;
      const over = trace.footer && emitted === trace.footer.tokens;
      const count = over ? t("race.finished", { n: emitted, time: seconds(trace.footer.seconds) }) : t("race.tokens", { n: emitted });
      if (lane.count.textContent !== count) {
        lane.count.textContent = count;
        const text = trace.iterations.slice(0, done + 1).map((it) => (it.draft ?? []).slice(0, it.accepted).map((token) => token.text).join("") + (it.ending?.text ?? "")).join("");
        lane.text.textContent = text.slice(-140).split("\n").map(shown).join(" ");
      }
    }
    const time = Math.min(this.time ?? 0, this.longest);
    this.clock.textContent = t("race.clock", { time: seconds(time), all: seconds(this.longest) });
    this.#verdict();
  }

  #rows() {
    return this.lanes.filter((lane) => lane.trace.footer).map((lane) => {
      const sums = lane.trace.totals.at(-1);
      return { method: lane.method.name, speed: speedOf(lane), rate: sums.drafted ? sums.accepted / sums.drafted : null, passes: lane.trace.iterations.length };
    });
  }

  #chart() {
    const rows = this.#rows();
    if (!rows.length) return;
    const base = rows.find((row) => row.method === "autoregressive");
    const narrow = this.chart.area.clientWidth < 480;
    this.chart.draw([{
      type: "bar", orientation: "h", y: rows.map((row) => t(`method.${row.method}`)), x: rows.map((row) => row.speed),
      marker: { color: rows.map((row) => (row.method === "autoregressive" ? colour("target") : colour("accepted"))) },
      text: rows.map((row) => `${number(row.speed, 0)}${base && row !== base ? `  (${number(row.speed / base.speed)}\u00d7)` : ""}`), textposition: "outside", cliponaxis: false,
      hovertemplate: "%{y}: %{x:.1f}<extra></extra>",
    }], { margin: { l: narrow ? 112 : 150, r: narrow ? 80 : 90, t: 10, b: 40 }, xaxis: { title: { text: t("metric.speed") }, rangemode: "tozero", nticks: narrow ? 4 : 8, tickangle: 0 }, yaxis: { autorange: "reversed", tickfont: { size: narrow ? 11 : 12 } }, bargap: 0.35 });
  }

  #table() {
    return {
      columns: [t("param.method"), t("metric.speed"), t("metric.acceptance"), t("race.passes")],
      rows: this.#rows().map((row) => [t(`method.${row.method}`), number(row.speed, 1), row.rate === null ? "\u2013" : percent(row.rate, 1), row.passes]),
    };
  }
}

const speedOf = (lane) => (lane?.trace.footer ? lane.trace.footer.tokens / lane.trace.footer.seconds : null);
