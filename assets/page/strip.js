// The token strip: the text as it grew, every guess included, grouped by iteration.
//
// Groups are built once and then shown, hidden or restyled, so that moving through a run of two thousand guesses
// touches only the iterations between the old and the new position.

import { emit, h, named, on, percent, shown, t } from "./dom.js";
import { fate as fateOf } from "./trace.js";

export class Strip {
  /** name: part of the ids of its tokens, since a page may hold several strips. */
  constructor(name) {
    this.name = name;
    this.prompt = h("span", { class: "sv-prompt" });
    this.body = h("div", { class: "sv-tokens", role: "listbox", tLabel: "strip.label", tabindex: "0" });
    this.node = h("div", { class: "sv-strip", tabindex: "-1" }, this.prompt, this.body);
    this.groups = [];
    this.last = -1; // last group that is visible
    this.tick = 0;
    this.chosen = null; // { index, j } of the token whose details are shown
    this.stick = true;
    this.node.addEventListener("scroll", () => {
      this.stick = this.node.scrollHeight - this.node.scrollTop - this.node.clientHeight < 48;
    });
    this.body.addEventListener("pointerover", (event) => this.#point(event.target));
    this.body.addEventListener("pointerleave", () => emit("iteration", this.chosen?.index ?? null));
    this.body.addEventListener("click", (event) => this.#choose(event.target.closest("[role=option]")));
    this.body.addEventListener("keydown", (event) => this.#key(event));
    this.body.addEventListener("focus", () => !this.chosen && this.#choose(this.#visible()[0]));
    on("iteration", (index) => this.highlight(index));
    on("language", () => this.#relabel());
  }

  load(trace) {
    this.trace = trace;
    this.body.textContent = "";
    this.groups = [];
    this.last = -1;
    this.tick = 0;
    this.chosen = null;
    this.stick = true;
    this.prompt.textContent = "";
    this.#showPrompt();
    emit("token", null);
  }

  #showPrompt() {
    if (!this.trace.header || this.prompt.textContent) return;
    const { prompt = "", prompt_pieces: pieces = [] } = this.trace.header;
    this.prompt.textContent = shownLong(prompt);
    // Behind a chat template the text answers the prompt, it does not continue it.
    this.prompt.classList.toggle("sv-question", pieces.length > 0 && pieces.join("").length > prompt.length + 8);
  }

  /** Draws the run as it stood at this tick. */
  draw(tick) {
    this.#showPrompt();
    const { index, step, verified } = this.trace.at(tick);
    const fragment = document.createDocumentFragment();
    while (this.groups.length <= index) {
      const group = this.#build(this.groups.length);
      this.groups.push(group);
      fragment.append(group.node);
    }
    if (fragment.childNodes.length) this.body.append(fragment);
    for (let i = index + 1; i <= this.last; i += 1) this.groups[i].node.hidden = true;
    for (let i = Math.max(0, this.last); i < index; i += 1) this.#set(this.groups[i], null);
    if (index >= 0) this.#set(this.groups[index], verified ? null : step);
    this.last = index;
    this.tick = tick;
    if (this.stick) this.node.scrollTop = this.node.scrollHeight;
  }

  /** One group: all verified (step null), or `step` guesses still waiting for the target. */
  #set(group, step) {
    if (group.step === step && !group.node.hidden) return;
    group.node.hidden = false;
    group.step = step;
    group.node.classList.toggle("sv-waiting", step !== null);
    group.tokens.forEach((token, j) => {
      token.node.hidden = step !== null && (token.ending || j >= step);
      token.node.className = `sv-tok sv-${step === null ? token.fate : "pending"}`;
      label(token, step !== null);
    });
  }

  #build(index) {
    const iteration = this.trace.iterations[index];
    const tokens = (iteration.draft ?? []).map((token, j) => {
      const fate = fateOf(iteration, j);
      return { node: chip(token.text, fate !== "refused"), fate, first: fate === "refused" && j === iteration.accepted, token, j };
    });
    if (iteration.ending) {
      const { ending } = iteration;
      tokens.push({ node: chip(ending.text, true), fate: tokens.length ? ending.kind : "own", token: ending, ending: true, j: tokens.length });
    }
    // role=group inside a listbox: a screen reader hears which tokens were guessed together.
    const node = h("span", { class: "sv-group", role: "group" });
    node.dataset.iteration = index;
    node.setAttribute("aria-label", t("strip.iteration", { n: index + 1 }));
    tokens.forEach((token) => {
      token.node.id = `sv-${this.name}-${index}-${token.j}`;
      token.node.dataset.j = token.j;
      node.append(token.node);
    });
    return { node, tokens, step: undefined };
  }

  #relabel() {
    this.groups.forEach((group, index) => {
      group.node.setAttribute("aria-label", t("strip.iteration", { n: index + 1 }));
      group.tokens.forEach((token) => label(token, group.step !== null));
    });
    if (this.chosen) emit("token", this.chosen);
  }

  #find(node) {
    const index = Number(node.parentNode.dataset.iteration);
    return { index, ...this.groups[index].tokens[Number(node.dataset.j)], iteration: this.trace.iterations[index], pending: this.groups[index].step !== null };
  }

  #point(target) {
    const node = target.closest?.("[role=option]");
    if (!node) return;
    const found = this.#find(node);
    emit("iteration", found.index);
    emit("token", found);
  }

  #choose(node) {
    if (!node) return;
    this.body.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
    node.setAttribute("aria-selected", "true");
    this.body.setAttribute("aria-activedescendant", node.id);
    this.chosen = this.#find(node);
    emit("iteration", this.chosen.index);
    emit("token", this.chosen);
    // Only within the strip: scrollIntoView would move the whole page.
    const above = node.offsetTop - this.node.scrollTop;
    if (above < 0 || above > this.node.clientHeight - 40) this.node.scrollTop = node.offsetTop - this.node.clientHeight / 2;
  }

  #visible() {
    return [...this.body.querySelectorAll("[role=option]")].filter((node) => !node.hidden && !node.parentNode.hidden);
  }

  #key(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity };
    if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const nodes = this.#visible();
    if (!nodes.length) return;
    const now = nodes.findIndex((node) => node.getAttribute("aria-selected") === "true");
    this.#choose(nodes[Math.max(0, Math.min(nodes.length - 1, now + moves[event.key]))]);
  }

  highlight(index) {
    this.lit?.classList.remove("sv-lit");
    this.lit = index === null || index === undefined ? null : this.groups[index]?.node;
    this.lit?.classList.add("sv-lit");
  }
}

/** A token on the page. breaks: does a line break of it break the line? One that was refused does not. */
function chip(text, breaks) {
  const node = h("span", { role: "option", "aria-selected": "false" });
  const visible = shown(text);
  if (visible === "") node.append(h("i", { class: "sv-partial", text: "\u25cc" }));
  visible.split("\n").forEach((part, i) => {
    if (i > 0) node.append(h("i", { class: "sv-break", text: "\u23ce" }), breaks ? h("br") : "");
    if (part) node.append(part);
  });
  return node;
}

function label(entry, pending) {
  const kind = pending ? "pending" : entry.fate;
  const parts = [named(entry.token.text), t(`token.${kind}`)];
  if (entry.token.confidence !== undefined) parts.push(`${t("token.confidence")} ${percent(entry.token.confidence)}`);
  entry.node.setAttribute("aria-label", parts.join(", "));
}

function shownLong(text) {
  const cut = text.length > 4000 ? `${text.slice(0, 4000)}\u2026` : text;
  return cut.split("\n").map(shown).join("\n");
}

/** The card beside the strip that tells all about the token under the pointer or the keyboard. */
export class TokenCard {
  constructor() {
    this.node = h("section", { class: "sv-card sv-token-card", tLabel: "card.label" });
    this.show(null);
    on("token", (found) => this.show(found));
    on("language", () => !this.shown && this.show(null));
  }

  show(found) {
    this.shown = found;
    const node = this.node;
    node.textContent = "";
    if (!found) {
      node.append(this.now = h("p", { class: "sv-now" }), h("p", { class: "sv-small sv-muted", t: "card.empty" }));
      this.now.textContent = this.story ?? "";
      return;
    }
    const { token, iteration, index } = found;
    const kind = found.pending ? "pending" : found.fate;
    const bars = h("dl", { class: "sv-bars" });
    if (token.confidence !== undefined) bars.append(...bar(t("token.confidence"), token.confidence, "draft"));
    const given = found.ending ? token.probability : token.target_probability;
    if (given !== undefined && given !== null) bars.append(...bar(t("token.target"), given, "target"));
    node.append(
      h("div", {},
        h("div", { class: "sv-card-head" },
          h("span", { class: `sv-tok sv-${kind}`, text: named(token.text) }),
          h("strong", { text: t(`token.${kind}`) })),
        h("p", { class: "sv-small", text: this.#sentence(found) }),
        h("p", { class: "sv-small sv-muted", text: `${t("strip.iteration", { n: index + 1 })} \u00b7 ${t(`stop.${iteration.stop}`)}` }),
        bars),
      h("div", {}, this.#alternatives(t("card.draft_alternatives"), found.ending ? [] : token.alternatives ?? [], "draft", token.id)),
      h("div", {}, this.#alternatives(t("card.target_alternatives"), this.#targetsView(found), "target", token.id)),
    );
  }

  /** What just happened, in a sentence: shown while no token is chosen. */
  tell(story) {
    if (story === this.story) return;
    this.story = story;
    if (!this.shown) this.now.textContent = story;
  }

  /** What the target thought at this place: known where its own token ended the iteration. */
  #targetsView({ iteration, ending, first }) {
    return ending || first ? iteration.ending?.alternatives ?? [] : [];
  }

  #sentence({ fate, first, iteration, pending }) {
    if (pending) return t("why.pending");
    if (fate !== "refused") return t(`why.${fate}`);
    return first && iteration.ending ? t("why.refused", { other: named(iteration.ending.text) }) : t("why.after");
  }

  #alternatives(title, list, who, id) {
    if (!list.length) return "";
    const bars = h("dl", { class: "sv-bars sv-alternatives" });
    list.slice(0, 5).forEach((other) => bars.append(...bar(named(other.text), other.probability, who, other.id === id)));
    return h("div", {}, h("h3", { class: "sv-h4", text: title }), bars);
  }
}

function bar(name, value, who, same = false) {
  const fill = h("span", { class: `sv-fill sv-fill-${who}` });
  fill.style.width = `${Math.max(0, Math.min(100, 100 * value))}%`;
  return [
    h("dt", { text: name, class: same ? "sv-same" : "" }),
    h("dd", {}, h("span", { class: "sv-track", "aria-hidden": "true" }, fill), h("span", { class: "sv-value", text: percent(value, value > 0 && value < 0.1 ? 1 : 0) })),
  ];
}
