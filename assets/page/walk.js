// View 6, How it works: a guided walk through the run on the stage, with the formulas filled from that very run.

import { clear, h, named, number, on, percent, seconds, t } from "./dom.js";
import { legend } from "./stage.js";
import { Strip } from "./strip.js";
import { Trace, refused } from "./trace.js";

const STEPS = ["alone", "draft", "verify", "refuse", "bonus", "rate", "speed", "stop"];

export class Walk {
  constructor(app) {
    this.app = app;
    this.step = 0;
    this.strip = new Strip("walk");
    this.strip.body.tabIndex = 0;
    this.title = h("h2", { tabindex: "-1" });
    this.text = h("p", { class: "sv-walk-text" });
    this.formula = h("div", { class: "sv-formulas" });
    this.counter = h("span", { class: "sv-small sv-muted" });
    this.back = h("button", { type: "button", class: "sv-run sv-stop sv-narrow", t: "walk.back", "data-do": "walk-back", on: { click: () => this.go(this.step - 1) } });
    this.next = h("button", { type: "button", class: "sv-run sv-narrow", t: "walk.next", "data-do": "walk-next", on: { click: () => this.go(this.step + 1) } });
    this.list = h("ol", { class: "sv-walk-list" }, STEPS.map((name, i) => h("li", {}, h("button", { type: "button", t: `walk.${name}.title`, on: { click: () => this.go(i) } }))));
    this.node = h("div", { class: "sv-walk" },
      h("nav", { class: "sv-card", tLabel: "walk.label" }, this.list),
      h("section", { class: "sv-card sv-walk-body", tLabel: "view.walk" }, this.counter, this.title, this.text, legend(), this.strip.node, this.formula, h("div", { class: "sv-run-row" }, this.back, this.next)));
    on("run", () => this.visible && this.go(this.step));
    on("language", () => this.visible && this.go(this.step));
  }

  shown() {
    this.visible = true;
    this.go(this.step);
  }

  get trace() {
    return this.app.view("watch").stage.trace;
  }

  go(step) {
    this.step = Math.max(0, Math.min(STEPS.length - 1, step));
    const name = STEPS[this.step];
    const { trace } = this;
    const facts = factsOf(trace);
    this.counter.textContent = t("walk.step", { n: this.step + 1, all: STEPS.length });
    this.title.textContent = t(`walk.${name}.title`);
    this.text.textContent = t(`walk.${name}.text`, facts.words);
    this.back.disabled = this.step === 0;
    this.next.disabled = this.step === STEPS.length - 1;
    this.list.querySelectorAll("button").forEach((button, i) => button.setAttribute("aria-current", i === this.step ? "step" : "false"));
    this.#show(trace, name, facts);
    clear(this.formula);
    for (const line of formulas(name, facts)) this.formula.append(h("p", { class: "sv-formula" }, h("span", { class: "sv-formula-symbols", text: line.symbols }), h("span", { class: "sv-formula-numbers", text: line.numbers })), ...(line.note ? [h("p", { class: "sv-small sv-muted", text: line.note })] : []));
  }

  /** A short piece of the run, with exactly the moment that the step speaks of. */
  #show(trace, name, facts) {
    const piece = new Trace();
    const index = { alone: null, draft: facts.typical, verify: facts.typical, refuse: facts.refusal, bonus: facts.full }[name];
    piece.header = { ...trace.header, prompt: before(trace, index ?? 0), prompt_pieces: [] };
    if (name === "alone") {
      // The same text as the target alone would have made it: one token a pass.
      kept(trace).slice(0, 24).forEach((token, i) => piece.add({ kind: "iteration", index: i, draft: [], accepted: 0, stop: "length", ending: { ...token, kind: "bonus" } }));
    } else if (index !== undefined && index !== null) piece.add({ ...trace.iterations[index], index: 0 });
    else trace.iterations.slice(0, 12).forEach((iteration) => piece.add(iteration));
    this.strip.load(piece);
    const drafted = piece.iterations[0]?.draft?.length ?? 0;
    this.strip.draw(name === "draft" ? drafted : piece.ticks);
    this.strip.node.scrollTop = 0;
  }
}

const LEAD = 90; // characters of the text before the moment that a step shows

/** The end of the text as it stood before iteration `index`. */
function before(trace, index) {
  const written = kept({ iterations: trace.iterations.slice(0, index) }).map((token) => token.text).join("");
  const text = (trace.header?.prompt ?? "") + written;
  return text.length > LEAD ? `\u2026${text.slice(-LEAD)}` : text;
}

const kept = (trace) => trace.iterations.flatMap((it) => [...(it.draft ?? []).slice(0, it.accepted), ...(it.ending ? [it.ending] : [])]);

/** Everything that the sentences and formulas name, from the run itself. */
function factsOf(trace) {
  const its = trace.iterations;
  const sums = trace.totals.at(-1) ?? { drafted: 0, accepted: 0, emitted: 0, drafting: 0, verifying: 0 };
  const find = (test, from = 0) => its.findIndex((it, i) => i >= from && test(it));
  const long = (test) => {
    const found = its.map((it, i) => [it, i]).filter(([it]) => test(it)).sort((a, b) => Math.abs((a[0].draft?.length ?? 0) - 4) - Math.abs((b[0].draft?.length ?? 0) - 4));
    return found.length ? found[0][1] : null;
  };
  const refusal = long((it) => refused(it) && it.accepted > 0) ?? long(refused);
  const full = long((it) => it.ending?.kind === "bonus" && it.draft?.length > 0);
  const typical = refusal ?? full ?? (find((it) => it.draft?.length) >= 0 ? find((it) => it.draft?.length) : null);
  const rate = sums.drafted ? sums.accepted / sums.drafted : NaN;
  const passes = its.length || 1;
  const k = sums.drafted / passes;
  const one = its.length ? sums.verifying / passes : NaN;
  const step = sums.drafted ? sums.drafting / sums.drafted : NaN;
  const cost = step / one;
  const expected = rate >= 1 ? k + 1 : (1 - rate ** (k + 1)) / (1 - rate);
  const wrong = refusal === null ? null : its[refusal];
  return {
    refusal, full, typical, rate, passes, k, one, step, cost, expected, sums,
    mean: sums.emitted / passes,
    textbook: expected / (k * cost + 1),
    words: {
      tokens: sums.emitted, passes: its.length, drafted: sums.drafted, accepted: sums.accepted,
      rate: Number.isFinite(rate) ? percent(rate) : "\u2013",
      count: typical === null ? 0 : its[typical].draft.length,
      wrong: wrong ? named(wrong.draft[wrong.accepted]?.text ?? "") : "\u2013",
      right: wrong?.ending ? named(wrong.ending.text) : "\u2013",
      bonus: full === null ? "\u2013" : named(its[full].ending.text),
      fullcount: full === null ? 0 : its[full].draft.length,
      mean: number(sums.emitted / passes),
      wasted: sums.drafted - sums.accepted,
    },
  };
}

function formulas(name, facts) {
  const { sums, passes, rate, k, expected, cost, mean, textbook, step, one } = facts;
  const shares = { a: sums.accepted, d: sums.drafted };
  if (name === "rate" && sums.drafted) {
    return [
      { symbols: t("formula.rate"), numbers: `\u03b1 = ${shares.a} \u00f7 ${shares.d} = ${percent(rate, 1)}` },
      { symbols: t("formula.length"), numbers: `${sums.emitted} \u00f7 ${passes} = ${number(mean)}` },
      { symbols: t("formula.expected"), numbers: `(1 \u2212 ${number(rate)}^${number(k + 1, 1)}) \u00f7 (1 \u2212 ${number(rate)}) = ${number(expected)}`, note: t("formula.expected.note", { k: number(k, 1) }) },
    ];
  }
  if (name === "speed" && sums.drafted && Number.isFinite(cost)) {
    return [
      { symbols: t("formula.cost"), numbers: `c = ${seconds(step)} \u00f7 ${seconds(one)} = ${number(cost)}` },
      { symbols: t("formula.speed"), numbers: `${number(expected)} \u00f7 (${number(k, 1)} \u00b7 ${number(cost)} + 1) = ${number(textbook)}\u00d7`, note: t("formula.speed.note") },
    ];
  }
  if (name === "stop" && sums.drafted) {
    return [{ symbols: t("formula.waste"), numbers: `${shares.d} \u2212 ${shares.a} = ${shares.d - shares.a}` }];
  }
  return [];
}

