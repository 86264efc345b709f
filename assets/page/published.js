// View 5, Published and measured: the sources' numbers with their hardware, and this machine's own, never mixed.

import { clear, h, has, language, number, on, percent, t } from "./dom.js";
import { change, pair as pairOf, setup } from "./settings.js";
import { guide } from "./study.js";
import { describe } from "./stage.js";

export class Published {
  constructor(app) {
    this.app = app;
    this.measured = [];
    this.tables = h("div", {});
    this.own = h("div", {});
    this.node = h("div", {},
      h("div", { class: "sv-view-head sv-one" }, guide("published", [])),
      h("section", { class: "sv-card", tLabel: "published.own" }, h("h2", { t: "published.own" }), h("p", { class: "sv-small sv-muted", t: "published.own.note" }), this.own),
      this.tables);
    on("language", () => this.#draw());
    this.#draw();
  }

  /** Adds runs of this visitor: { pair, method, trace, check }. */
  add(runs) {
    this.measured.push(...runs.filter((run) => run.trace.footer));
    this.#draw();
  }

  #draw() {
    clear(this.own);
    if (!this.measured.length) this.own.append(h("p", { class: "sv-empty", t: "published.none" }));
    else {
      const columns = ["published.models", "param.method", "metric.speed", "published.speedup", "metric.acceptance", "published.hardware"];
      this.own.append(table(columns.map((key) => t(key)), this.measured.map(({ pair, method, trace, check }) => {
        const sums = trace.totals.at(-1);
        return [pairOf(pair).title, describe(method), number(trace.footer.tokens / trace.footer.seconds, 1), check?.speedup ? `${number(check.speedup)}\u00d7` : "\u2013",
          sums?.drafted ? t("published.rate", { rate: percent(sums.accepted / sums.drafted), accepted: sums.accepted, drafted: sums.drafted }) : "\u2013",
          t("published.here", { device: trace.header.target.device ?? "" })];
      })));
    }
    clear(this.tables);
    for (const source of setup.boot.published) {
      const runnable = source.rows.some((row) => row.pair);
      const columns = [...source.columns.map((key) => t(`published.${key}`)), ...(runnable ? [t("published.run")] : [])];
      const rows = source.rows.map((row) => [...row.cells.map((cell, i) => printed(cell, source.columns[i])), ...(runnable ? [this.#runCell(row)] : [])]);
      this.tables.append(h("section", { class: "sv-card sv-published", "aria-label": t(`published.title.${source.name}`) },
        h("h2", { t: `published.title.${source.name}` }),
        h("p", { class: "sv-small sv-muted", text: t("published.source", { source: source.source, hardware: t(`published.hardware.${source.name}`) }) }),
        table(columns, rows),
        source.note && h("p", { class: "sv-small sv-muted", t: source.note })));
    }
  }

  #runCell({ pair, method, exit_layer, why }) {
    if (!pair) return "";
    if (why) return h("span", { class: "sv-small sv-muted", text: t(why.key, why.values) });
    const bytes = pairOf(pair).fetch_bytes;
    const text = t("published.run_row") + (bytes ? ` (${t("pair.fetch", { size: Math.round(bytes / 1e6) })})` : "");
    return h("button", { type: "button", class: "sv-chip", text, on: { click: () => {
      change({ pair, method, ...(exit_layer ? { exit_layer } : {}) });
      this.app.runNow();
    } } });
  }
}

/** As the source prints it: counts as they are, the rest with at least two digits. */
function printed(cell, column) {
  if (typeof cell !== "number") return has(`published.cell.${cell}`) ? t(`published.cell.${cell}`) : cell ?? "\u2013";
  if (["exit_layer", "milliseconds"].includes(column)) return String(cell);
  return cell.toLocaleString(language(), { minimumFractionDigits: 2, maximumFractionDigits: 3 });
}

function table(columns, rows) {
  return h("div", { class: "sv-table-scroll sv-tall", tabindex: "0", role: "region", tLabel: "published.table" },
    h("table", { class: columns.length < 3 ? "sv-table sv-few" : "sv-table" },
      h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col", text: name })))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell instanceof Node ? cell : String(cell))))))));
}
