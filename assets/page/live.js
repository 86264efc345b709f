// The four figures beside the strip, drawn from the records up to where the player stands.

import { emit, h, named, on, percent, seconds, t } from "./dom.js";
import { Figure } from "./plots.js";
import { bar, colour, line, marker } from "./look.js";
import { fate, refused } from "./trace.js";

// Often enough to look alive, seldom enough to leave the processor to the model.
const REDRAW_MS = 250;

export class LiveFigures {
  constructor(player) {
    this.player = player;
    this.figures = {
      acceptance: new Figure("acceptance", { table: () => this.#acceptanceTable(), legend: () => ["accepted", "refused", "correction", "bonus"].map(fated) }),
      lookahead: new Figure("lookahead", { table: () => this.#lookaheadTable(), legend: () => [["draft", t("legend.drafted")], ["oracle", t("legend.oracle")], ["atleast", t("legend.oracle_at_least")]] }),
      confidence: new Figure("confidence", { table: () => this.#confidenceTable(), legend: () => [...["accepted", "refused"].map(fated), ["threshold", t("axis.threshold")]] }),
      timeline: new Figure("timeline", { table: () => this.#timelineTable() }),
    };
    this.node = h("div", { class: "sv-figures" }, Object.values(this.figures).map((figure) => figure.node));
    for (const figure of Object.values(this.figures)) {
      figure.onHover = (point) => emit("iteration", point ? point.customdata : null);
      figure.onClick = (point) => emit("go-to-iteration", point.customdata);
    }
    player.addEventListener("tick", () => this.#soon());
    player.addEventListener("load", () => this.#fresh());
    on("theme", () => this.#soon());
    on("language", () => this.#soon());
    on("iteration", (index) => this.#light(index));
    on("plotly", () => this.#soon());
  }

  #fresh() {
    this.revision = (this.revision ?? 0) + 1; // a new run starts with a new zoom
    this.#soon();
  }

  #soon() {
    if (this.timer) return;
    const wait = Math.max(0, REDRAW_MS - (performance.now() - (this.drawnAt ?? 0)));
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.drawnAt = performance.now();
      this.draw();
    }, wait);
  }

  /** How many iterations are verified where the player stands. */
  get count() {
    const { index, verified } = this.player.trace.at(this.player.tick);
    return verified ? index + 1 : Math.max(0, index);
  }

  get seen() {
    return this.player.trace.iterations.slice(0, this.count);
  }

  draw() {
    if (!window.Plotly || this.node.offsetParent === null) return;
    const seen = this.seen;
    const total = Math.max(this.player.following ? 0 : this.player.trace.iterations.length, seen.length, 8);
    const xaxis = { title: { text: t("axis.iteration") }, range: [0.4, total + 0.6], tickformat: "d" };
    const keep = { uirevision: this.revision, shapes: this.shapes?.iteration ?? [] };
    this.#acceptance(seen, xaxis, keep);
    this.#lookahead(seen, xaxis, keep);
    this.#confidence(seen, xaxis, keep);
    this.#timeline(seen, keep);
    this.node.dataset.iterations = seen.length;
  }

  #acceptance(seen, xaxis, keep) {
    const x = seen.map((it) => it.index + 1);
    const ids = seen.map((it) => it.index);
    const accepted = seen.map((it) => it.accepted);
    const rest = seen.map((it) => (it.draft?.length ?? 0) - it.accepted);
    const own = ["correction", "bonus"].map((kind) => seen.filter((it) => it.ending?.kind === kind));
    const top = (it) => (it.draft?.length ?? 0) + 0.6;
    const hover = (name) => `${t("axis.iteration")} %{x}<br>${name}: %{y}<extra></extra>`;
    this.figures.acceptance.draw([
      { type: "bar", x, y: accepted, customdata: ids, name: t("token.accepted"), marker: bar("accepted"), hovertemplate: hover(t("token.accepted")) },
      { type: "bar", x, y: rest, customdata: ids, name: t("token.refused"), marker: bar("refused"), hovertemplate: hover(t("token.refused")) },
      ...["correction", "bonus"].map((kind, k) => ({
        type: "scatter", mode: "markers", x: own[k].map((it) => it.index + 1), y: own[k].map(top), customdata: own[k].map((it) => it.index),
        name: t(`token.${kind}`), marker: marker(kind, 7), hovertemplate: `${t("axis.iteration")} %{x}<br>${t(`token.${kind}`)}<extra></extra>`,
      })),
    ], { ...keep, barmode: "stack", bargap: 0.2, xaxis, yaxis: whole(t("axis.tokens"), seen.map(top)) });
  }

  #lookahead(seen, xaxis, keep) {
    const drafted = seen.filter((it) => it.draft?.length);
    const exact = drafted.filter(refused);
    const atLeast = drafted.filter((it) => !refused(it));
    const draftSizes = drafted.map((it) => it.draft.length);
    const marks = (list, name, look) => ({
      type: "scatter", mode: "markers", x: list.map((it) => it.index + 1), y: list.map((it) => it.accepted), customdata: list.map((it) => it.index),
      name, marker: look, hovertemplate: `${t("axis.iteration")} %{x}<br>${name}: %{y}<extra></extra>`,
    });
    const open = { ...marker("oracle", 9), symbol: "triangle-up-open" };
    this.figures.lookahead.draw([
      { type: "bar", x: drafted.map((it) => it.index + 1), y: draftSizes, customdata: drafted.map((it) => it.index), name: t("legend.drafted"), marker: bar("draft"), hovertemplate: `${t("axis.iteration")} %{x}<br>${t("legend.drafted")}: %{y}<extra></extra>` },
      marks(exact, t("legend.oracle"), marker("oracle", 9)),
      marks(atLeast, t("legend.oracle_at_least"), open),
    ], { ...keep, bargap: 0.2, xaxis, yaxis: whole(t("axis.tokens"), draftSizes) });
  }

  #confidence(seen, xaxis, keep) {
    const points = { accepted: { x: [], y: [], id: [], text: [] }, refused: { x: [], y: [], id: [], text: [] } };
    for (const it of seen) {
      const k = it.draft?.length ?? 0;
      it.draft?.forEach((token, j) => {
        const group = points[fate(it, j)];
        group.x.push(it.index + 1 + ((j + 1) / (k + 1) - 0.5) * 0.9);
        group.y.push(token.confidence);
        group.id.push(it.index);
        group.text.push(plain(named(token.text)));
      });
    }
    const limits = seen.filter((it) => typeof it.policy?.threshold === "number" && it.policy.threshold > 0);
    const traces = ["accepted", "refused"].map((kind) => ({
      type: "scatter", mode: "markers", x: points[kind].x, y: points[kind].y, customdata: points[kind].id, text: points[kind].text,
      name: t(`token.${kind}`), marker: marker(kind, 6, { opacity: 0.85 }), hovertemplate: `%{text}<br>${t("token.confidence")}: %{y:.0%}<extra>${t(`token.${kind}`)}</extra>`,
    }));
    if (limits.length) {
      traces.push({
        type: "scatter", mode: "lines", x: limits.flatMap((it) => [it.index + 0.5, it.index + 1.5]), y: limits.flatMap((it) => [it.policy.threshold, it.policy.threshold]),
        name: t("axis.threshold"), line: line("threshold"), hoverinfo: "skip",
      });
    }
    this.figures.confidence.draw(traces, { ...keep, xaxis, yaxis: { range: [-0.04, 1.04], tickformat: ".0%", title: { text: t("token.confidence") } } });
  }

  #timeline(seen, keep) {
    const spans = { draft: { base: [], x: [], id: [] }, target: { base: [], x: [], id: [] } };
    let clock = 0;
    for (const it of seen) {
      for (const [who, length] of [["draft", it.draft_seconds ?? 0], ["target", it.verify_seconds ?? 0]]) {
        if (length > 0) {
          spans[who].base.push(clock * 1000);
          spans[who].x.push(length * 1000);
          spans[who].id.push(it.index);
        }
        clock += length;
      }
    }
    const rows = { draft: t("timeline.draft"), target: t("timeline.verify") };
    this.figures.timeline.draw(Object.keys(spans).map((who) => ({
      type: "bar", orientation: "h", base: spans[who].base, x: spans[who].x, y: spans[who].x.map(() => rows[who]), customdata: spans[who].id,
      name: rows[who], marker: { ...bar(who), line: { width: 1, color: colour("surface") } }, hovertemplate: `${rows[who]}: %{x:.1f} ms<extra></extra>`,
    })), {
      ...keep, shapes: this.shapes?.time ?? [], barmode: "overlay", bargap: 0.35, showlegend: false, margin: { l: 78, r: 10, t: 8, b: 38 },
      xaxis: { title: { text: t("axis.milliseconds") }, range: [0, Math.max(clock, this.player.following ? 0 : this.player.trace.duration) * 1000 || 1] },
      yaxis: { categoryorder: "array", categoryarray: [rows.target, rows.draft], range: [-0.6, 1.6] },
    });
  }

  /** Shades one iteration in every figure. */
  #light(index) {
    if (index === this.lit) return;
    this.lit = index;
    const band = (x0, x1) => [{ type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, layer: "below", line: { width: 0 }, fillcolor: colour("ink"), opacity: 0.13 }];
    const known = index !== null && index !== undefined && index < this.count;
    const end = known ? this.player.trace.totals[index].seconds * 1000 : 0;
    const begin = known && index > 0 ? this.player.trace.totals[index - 1].seconds * 1000 : 0;
    this.shapes = known ? { iteration: band(index + 0.5, index + 1.5), time: band(begin, end) } : null;
    clearTimeout(this.lightTimer);
    this.lightTimer = setTimeout(() => {
      for (const [name, figure] of Object.entries(this.figures)) {
        if (!figure.drawn || figure.area.offsetParent === null) continue;
        window.Plotly.relayout(figure.area, { shapes: this.shapes?.[name === "timeline" ? "time" : "iteration"] ?? [] });
      }
    }, 40);
  }

  #acceptanceTable() {
    return {
      columns: [t("axis.iteration"), t("legend.drafted"), t("token.accepted"), t("token.refused"), t("card.ending")],
      rows: this.seen.map((it) => [it.index + 1, it.draft?.length ?? 0, it.accepted, (it.draft?.length ?? 0) - it.accepted, it.ending ? t(`token.${it.ending.kind}`) : ""]),
    };
  }

  #lookaheadTable() {
    return {
      columns: [t("axis.iteration"), t("legend.drafted"), t("legend.oracle")],
      rows: this.seen.map((it) => [it.index + 1, it.draft?.length ?? 0, refused(it) ? it.accepted : `\u2265 ${it.accepted}`]),
    };
  }

  #confidenceTable() {
    return {
      columns: [t("axis.iteration"), t("card.token"), t("token.confidence"), t("card.fate"), t("axis.threshold")],
      rows: this.seen.flatMap((it) => (it.draft ?? []).map((token, j) => [it.index + 1, named(token.text), percent(token.confidence), t(`token.${fate(it, j)}`), it.policy?.threshold ?? ""])),
    };
  }

  #timelineTable() {
    return {
      columns: [t("axis.iteration"), t("timeline.draft"), t("timeline.verify")],
      rows: this.seen.map((it) => [it.index + 1, seconds(it.draft_seconds ?? 0), seconds(it.verify_seconds ?? 0)]),
    };
  }
}

const fated = (kind) => [kind, t(`token.${kind}`)];

const whole = (title, values) => ({ title: { text: title }, range: [0, Math.max(4, ...values) * 1.12], tickformat: "d", dtick: Math.max(1, Math.ceil(Math.max(4, ...values) / 5)) });

/** Plotly reads a few tags in texts: a token must not be obeyed. */
export const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;").replace(/%\{/g, "%\u200b{");

