// The stage: strip, transport, the numbers under it and the token card. One for every run, live or recorded.

import { accountOf } from "./account.js";
import { ICONS, clear, h, icon, language, named, number, on, percent, seconds, t } from "./dom.js";
import { Player, SPEEDS } from "./player.js";
import { Strip, TokenCard } from "./strip.js";
import { Trace } from "./trace.js";

export class Stage {
  constructor() {
    this.trace = new Trace();
    this.player = new Player(this.trace);
    this.strip = new Strip("token");
    this.card = new TokenCard();
    this.title = h("h2", { class: "sv-run-title" });
    this.state = h("span", { class: "sv-badge" });
    this.metrics = h("dl", { class: "sv-metrics" });
    this.verdict = h("div", { class: "sv-verdict", role: "status" });
    this.transport = new Transport(this.player);
    this.node = h("section", { class: "sv-card sv-stage", tLabel: "stage.label" },
      this.head = h("div", { class: "sv-stage-head" }, this.title, this.state),
      legend(),
      this.strip.node,
      this.transport.node,
      this.metrics,
      this.verdict,
      this.card.node);
    this.player.addEventListener("tick", () => this.#draw());
    this.player.addEventListener("state", () => this.#stateChanged());
    on("language", () => this.refresh());
    on("go-to-iteration", (index) => {
      this.player.pause();
      this.player.seek(this.trace.endOf(index));
    });
    this.node.addEventListener("keydown", (event) => this.transport.key(event));
    this.show(this.trace, { kind: "none" });
  }

  /** Puts a run on the stage. source: { kind: "recorded" | "uploaded" | "live" | "none", ... }. */
  show(trace, source) {
    this.trace = trace;
    this.source = source;
    this.check = source.check ?? null;
    this.strip.load(trace);
    this.player.load(trace);
    this.transport.load(trace);
    this.refresh();
    this.#draw();
  }

  /** Records were added to the trace on the stage. */
  grown() {
    this.transport.load(this.trace);
    this.player.grown();
    if (!this.titled) this.refresh();
  }

  finished(source) {
    this.source = { ...this.source, ...source };
    this.check = source.check ?? this.check;
    this.refresh();
    this.#draw();
  }

  refresh() {
    const { header } = this.trace;
    this.titled = Boolean(header);
    clear(this.title);
    if (header) {
      const draft = header.draft ? ` + ${short(header.draft.name)}` : "";
      this.title.append(h("span", { text: `${short(header.target.name ?? "?")}${draft}` }), " ", h("span", { class: "sv-muted", text: describe(header.method) }));
    }
    this.#stateChanged();
    this.card.tell(this.#story());
    this.#verdict();
    this.#numbers();
    this.transport.words();
  }

  /** The moment where the player stands, as a sentence. */
  #story() {
    const { index, step, verified } = this.trace.at(this.player.tick);
    if (index < 0) return "";
    const { draft = [], accepted, ending } = this.trace.iterations[index];
    const values = { n: index + 1, accepted, drafted: verified ? draft.length : step, token: ending ? named(ending.text) : "" };
    if (!verified) return t("story.drafting", values);
    if (!ending) return t("story.end", values);
    return t(`story.${draft.length ? ending.kind : "own"}`, values);
  }

  #stateChanged() {
    const { kind, waiting } = this.source;
    const key = kind === "live" && this.player.following ? "live" : kind === "live" ? "replay" : kind;
    this.state.textContent = t(`state.${key}`, { n: waiting ?? 0 });
    this.state.dataset.kind = key;
    this.state.hidden = kind === "none";
    this.transport.refresh();
  }

  #draw() {
    this.strip.draw(this.player.tick);
    this.card.tell(this.#story());
    this.#numbers();
    this.transport.refresh();
  }

  #numbers() {
    const sums = this.trace.sums(this.player.tick);
    const rate = sums.drafted ? percent(sums.accepted / sums.drafted) : "\u2013";
    const perPass = sums.iterations ? number(sums.emitted / sums.iterations) : "\u2013";
    const speed = sums.seconds > 0 ? number(sums.emitted / sums.seconds, 1) : "\u2013";
    this.#tiles([
      ["acceptance", rate, t("metric.acceptance.note", { accepted: sums.accepted, drafted: sums.drafted })],
      ["length", perPass, t("metric.length.note", { tokens: sums.emitted, passes: sums.iterations })],
      ["speed", speed, t("metric.speed.note", { time: seconds(sums.seconds) })],
      ["saved", String(Math.max(0, sums.emitted - sums.iterations)), t("metric.saved.note")],
    ]);
  }

  #tiles(tiles) {
    if (this.tileNodes?.language !== language()) {
      clear(this.metrics);
      this.tileNodes = { language: language() };
      for (const [key] of tiles) {
        const value = h("dd", { class: "sv-metric-value" });
        const note = h("dd", { class: "sv-metric-note" });
        this.tileNodes[key] = { value, note };
        this.metrics.append(h("div", { class: "sv-metric", "data-metric": key }, h("dt", { text: t(`metric.${key}`) }), value, note));
      }
    }
    for (const [key, value, note] of tiles) {
      const nodes = this.tileNodes[key];
      if (nodes.value.textContent !== value) nodes.value.textContent = value;
      if (nodes.note.textContent !== note) nodes.note.textContent = note;
    }
  }

  #verdict() {
    const check = this.check;
    clear(this.verdict);
    this.verdict.dataset.kind = check?.kind ?? "none";
    this.verdict.toggleAttribute("data-recorded", Boolean(check?.recorded));
    if (!check) return;
    const marks = { identical: "\u2713", differs: "\u2260", unchecked: "\u2013", checking: "\u2026", sampled: "\u2013", stopped: "\u25a0" };
    this.verdict.append(
      h("span", { class: "sv-verdict-mark", "aria-hidden": "true", text: marks[check.kind] ?? "\u2013" }),
      h("div", {},
        h("strong", { text: t(`verdict.${check.kind}`, { ...check, speedup: number(check.speedup ?? NaN) }) }),
        (check.reasons ?? []).map((reason) => h("p", { class: "sv-small", text: t(reason.key, formatted(reason.values)) })),
        accountOf(check)));
  }
}

/** Numbers inside sentences, in the reader's own notation. */
function formatted(values = {}) {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, typeof value === "number" && !Number.isInteger(value) ? number(value) : value]));
}

const short = (name) => String(name).replace(/\/+$/, "").split("/").at(-1);

export function describe(method = {}) {
  const { name, ...rest } = method;
  const parameters = Object.entries(rest).filter(([, value]) => value !== null && value !== undefined && typeof value !== "object");
  const title = t(`method.${name}`) === `method.${name}` ? String(name) : t(`method.${name}`);
  return [title, ...parameters.map(([key, value]) => `${t(`param.${key}.short`)}\u00a0${value}`)].join(" \u00b7 ");
}

export function legend() {
  const kinds = ["accepted", "refused", "correction", "bonus", "pending"];
  return h("ul", { class: "sv-legend", tLabel: "legend.label" },
    kinds.map((kind) => h("li", {}, h("span", { class: `sv-tok sv-${kind}`, t: `token.${kind}` }), h("span", { class: "sv-small sv-muted", t: `legend.${kind}` }))));
}

/** Play, pause, step, scrub, speed; buttons, and keys for all of them. */
class Transport {
  constructor(player) {
    this.player = player;
    const button = (key, run) => h("button", { type: "button", class: "sv-icon", tLabel: `transport.${key}`, tTitle: `transport.${key}.title`, "data-do": key, on: { click: run } }, icon(ICONS[key]));
    this.play = button("play", () => player.toggle());
    this.play.classList.add("sv-primary");
    this.scrub = h("input", { type: "range", min: 0, max: 0, step: 1, value: 0, tLabel: "transport.scrub", class: "sv-scrub", on: { input: () => { player.pause(); player.seek(Number(this.scrub.value)); } } });
    this.speed = h("select", { tLabel: "transport.speed", on: { change: () => player.setSpeed(Number(this.speed.value)) } },
      SPEEDS.map((speed) => h("option", { value: speed })));
    this.where = h("span", { class: "sv-where sv-small sv-muted" });
    this.node = h("div", { class: "sv-transport", role: "group", tLabel: "transport.label" },
      button("start", () => { player.pause(); player.seek(0); }),
      button("iteration_back", () => player.stepIteration(-1)),
      button("token_back", () => player.stepToken(-1)),
      this.play,
      button("token_on", () => player.stepToken(1)),
      button("iteration_on", () => player.stepIteration(1)),
      button("end", () => { player.pause(); player.seek(player.trace.ticks); }),
      this.scrub,
      this.where,
      h("label", { class: "sv-speed" }, h("span", { t: "transport.speed.label" }), this.speed));
    this.words();
  }

  load(trace) {
    this.scrub.max = trace.ticks;
    this.refresh();
  }

  words() {
    [...this.speed.options].forEach((option, i) => {
      option.textContent = SPEEDS[i] === 1 ? t("transport.real_pace") : `1\u2044${Math.round(1 / SPEEDS[i])}`;
    });
    this.refresh();
  }

  refresh() {
    const { player } = this;
    const key = player.playing ? "pause" : "play";
    if (this.shownKey !== key + language()) {
      this.shownKey = key + language();
      this.play.dataset.tLabel = `transport.${key}`;
      this.play.dataset.tTitle = `transport.${key}.title`;
      this.play.setAttribute("aria-label", t(`transport.${key}`));
      this.play.title = t(`transport.${key}.title`);
      this.play.firstChild.firstChild.setAttribute("d", ICONS[key]);
    }
    this.scrub.value = player.tick;
    const { index } = player.trace.at(player.tick);
    const where = t("transport.where", { n: Math.max(0, index + 1), total: player.trace.iterations.length });
    if (this.where.textContent !== where) this.where.textContent = where;
    this.scrub.setAttribute("aria-valuetext", where);
    this.speed.value = String(player.speed);
  }

  /** Keys anywhere on the stage; the strip and form fields keep those that they need themselves. */
  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea, summary")) return;
    const { player } = this;
    const onButton = event.target.matches("button");
    const deeds = {
      " ": onButton ? null : () => player.toggle(),
      k: () => player.toggle(),
      ArrowRight: () => (event.shiftKey ? player.stepIteration(1) : player.stepToken(1)),
      ArrowLeft: () => (event.shiftKey ? player.stepIteration(-1) : player.stepToken(-1)),
      l: () => player.stepIteration(1),
      j: () => player.stepIteration(-1),
      Home: () => { player.pause(); player.seek(0); },
      End: () => { player.pause(); player.seek(player.trace.ticks); },
      "+": () => this.#faster(-1),
      "-": () => this.#faster(1),
    };
    const deed = deeds[event.key];
    if (!deed) return;
    event.preventDefault();
    deed();
  }

  #faster(direction) {
    const now = SPEEDS.indexOf(this.player.speed);
    this.player.setSpeed(SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, now + direction))]);
  }
}

