// What views 2 and 3 share: one output, probed once on the model queue, then asked again and again.

import { clear, h, number, on, percent, t } from "./dom.js";
import { theme } from "./look.js";
import { Job, ask, progressOf } from "./server.js";
import { pair, settings } from "./settings.js";

/** The strip of facts above a study: which models, which prompt, and the button that measures. */
export class StudyBar {
  constructor({ drafter, onReady, button }) {
    this.drafter = drafter;
    this.onReady = onReady;
    this.about = h("p", { class: "sv-small sv-muted sv-about" });
    this.button = h("button", { type: "button", class: "sv-run sv-narrow", t: button, "data-do": "probe", on: { click: () => this.measure() } });
    this.stopButton = h("button", { type: "button", class: "sv-run sv-stop sv-narrow", t: "run.stop", on: { click: () => this.job?.stop() } });
    this.stopButton.hidden = true;
    this.status = h("p", { class: "sv-small sv-status", role: "status" });
    this.failure = h("p", { class: "sv-error", role: "alert" });
    this.progress = h("progress", { max: 1, value: 0, tLabel: "run.progress" });
    this.progress.hidden = true;
    this.node = h("div", { class: "sv-study-bar" }, this.about, h("div", { class: "sv-run-row" }, this.button, this.stopButton), this.progress, this.status, this.failure);
    on("settings", () => this.refresh());
    on("language", () => this.refresh());
    this.refresh();
  }

  refresh() {
    const prompt = settings.prompt.length > 90 ? `${settings.prompt.slice(0, 90)}\u2026` : settings.prompt;
    this.about.textContent = t("study.about", { models: pair().title, prompt: prompt.replace(/\s+/g, " "), limit: Math.min(settings.limit, 256) });
  }

  request(more = {}) {
    return { pair: settings.pair, drafter: this.drafter(), prompt: settings.prompt, limit: Math.min(settings.limit, 256), chat: settings.chat, ...more };
  }

  async measure(more = {}) {
    if (this.job) return null;
    this.failure.textContent = "";
    this.button.hidden = true;
    this.stopButton.hidden = false;
    const job = new Job("probe", this.request(more));
    this.job = job;
    try {
      const end = await job.run({ onStatus: (status) => this.#status(status) });
      if (end.state !== "done") {
        this.#say(t("run.stopped"));
        return null;
      }
      this.#say(t("study.ready"));
      if (!more.twin) this.run = job.id;
      await this.onReady?.(job.id, more);
      return job.id;
    } catch (error) {
      this.#say("");
      this.failure.textContent = error.message || t("error.lost");
      return null;
    } finally {
      this.job = null;
      this.button.hidden = false;
      this.stopButton.hidden = true;
      this.progress.hidden = true;
    }
  }

  #say(text, share = null) {
    this.status.textContent = text;
    this.progress.hidden = share === null;
    if (share !== null && Number.isFinite(share)) this.progress.value = share;
    else this.progress.removeAttribute("value");
  }

  #status({ state, waiting, progress }) {
    if (state === "waiting") this.#say(t(waiting > 0 ? "run.waiting" : "run.starting", { n: waiting }));
    else if (state === "loading" && progress) {
      const { text, share } = progressOf(progress);
      this.#say(text, share);
    } else this.#say(t("study.measuring"), progress?.total ? progress.done / progress.total : NaN);
  }
}

/** Asks the server while a slider moves: one question at a time, always the newest next. */
export class Asker {
  constructor(name, take) {
    this.name = name;
    this.take = take;
  }

  async ask(values) {
    this.next = { ...values, dark: theme() === "dark" };
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.next) {
        const now = this.next;
        this.next = null;
        await this.take(await ask(this.name, now));
      }
      this.failed?.(null);
    } catch (error) {
      this.failed?.(error);
    } finally {
      this.busy = false;
    }
  }
}

/** Tiles for the numbers of a simulated run. */
export function studyTiles(node, numbers) {
  clear(node);
  const tiles = [
    [t("metric.acceptance"), numbers.rate === null ? "\u2013" : percent(numbers.rate), t("metric.acceptance.note", { accepted: numbers.accepted, drafted: numbers.drafted })],
    [t("metric.length"), number(numbers.length), t("metric.length.note", { tokens: numbers.tokens, passes: numbers.iterations })],
    [t("metric.predicted"), `${number(numbers.speedup)}\u00d7`, t("metric.predicted.note", { speed: number(numbers.tokens_per_second, 0) })],
  ];
  for (const [name, value, note] of tiles) {
    node.append(h("div", { class: "sv-metric" }, h("dt", { text: name }), h("dd", { class: "sv-metric-value", text: value }), h("dd", { class: "sv-metric-note", text: note })));
  }
}

/** Two or three sentences beside the pictures, and buttons that set the controls. */
export function guide(key, tries) {
  return h("section", { class: "sv-guide", tLabel: "guide.label" },
    h("h2", { t: `${key}.title` }),
    h("p", { t: `${key}.text` }),
    h("div", { class: "sv-tries" }, tries.map(([name, run]) => h("button", { type: "button", class: "sv-try", on: { click: run } }, h("strong", { t: "try.label" }), " ", h("span", { t: `${key}.try.${name}` })))));
}

