// Plotly: brought in late (it is the heaviest thing on the page), and one way of drawing for all figures.

import { ICONS, h, icon, on, t } from "./dom.js";
import { look, theme } from "./look.js";

let loading = null;

/** Resolves when window.Plotly is there; the script comes from this server. */
export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = h("script", { src: look.plotly, async: true });
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => reject(new Error("plotly.js did not load")));
    document.head.append(script);
  });
  return loading;
}

export const plotlyLoaded = () => Boolean(window.Plotly);

const CONFIG = { responsive: true, displaylogo: false, displayModeBar: false, showSendToCloud: false, plotlyServerURL: "" };

/** A figure on the page: heading, what to look at, the plot, a menu to take it away, its data as a table. */
export class Figure {
  /** key: catalogue keys `fig.KEY.title`, `fig.KEY.note`. table(): rows for readers who cannot see it. */
  constructor(key, { height = 230, table = null, legend = null } = {}) {
    this.key = key;
    this.height = height;
    this.table = table;
    this.legendOf = legend; // [meaning, text] pairs; drawn in HTML, which wraps on narrow screens
    this.legend = h("ul", { class: "sv-fig-legend", "aria-hidden": "true" });
    this.area = h("div", { class: "sv-plot", role: "img" });
    this.area.style.height = `${height}px`;
    this.note = h("p", { class: "sv-small sv-muted" });
    this.title = h("h3", {});
    this.rows = h("div", { class: "sv-table-scroll", tabindex: "0", role: "region" });
    this.tableBox = h("details", { class: "sv-details" }, h("summary", { t: "fig.table" }), this.rows);
    this.tableBox.hidden = true;
    this.tableBox.addEventListener("toggle", () => this.tableBox.open && this.#fillTable());
    this.menu = h("details", { class: "sv-menu" },
      h("summary", { tLabel: "fig.save", tTitle: "fig.save" }, icon(ICONS.save)),
      h("div", { class: "sv-menu-list" }, ["png", "svg", "html", "json"].map((kind) => h("button", {
        type: "button", text: kind.toUpperCase(), on: { click: () => this.save(kind) },
      }))));
    this.node = h("figure", { class: "sv-figure" },
      h("div", { class: "sv-figure-head" }, this.title, this.menu), this.note, this.legend, this.area, this.tableBox);
    this.#words();
    on("language", () => this.#words());
    on("theme", () => this.last && this.draw(...this.last));
    this.observer = new ResizeObserver(() => this.#fit());
    this.observer.observe(this.area);
  }

  #words() {
    this.title.textContent = this.titleText ?? t(`fig.${this.key}.title`);
    this.note.textContent = this.noteText ?? t(`fig.${this.key}.note`);
    this.area.setAttribute("aria-label", this.title.textContent);
    this.#fillLegend();
    this.rows.setAttribute("aria-label", this.title.textContent);
  }

  #fillLegend() {
    this.legend.textContent = "";
    for (const [meaning, text] of this.legendOf?.() ?? []) {
      // "At least" is the oracle's open triangle: a mark of the live figures alone.
      const mark = h("span", { text: meaning === "atleast" ? "\u25b3" : look.meanings[meaning].glyph });
      mark.style.color = `var(--sv-${meaning === "atleast" ? "oracle" : meaning})`;
      this.legend.append(h("li", {}, mark, text));
    }
    this.legend.hidden = !this.legendOf;
  }

  setWords(title, note) {
    this.titleText = title;
    this.noteText = note;
    this.#words();
  }

  #fit() {
    if (this.drawn && this.area.clientWidth > 0 && this.area.clientWidth !== this.width) {
      this.width = this.area.clientWidth;
      window.Plotly.Plots.resize(this.area);
    }
  }

  /** Draws or updates in place; a hidden figure waits until it is seen. */
  async draw(data, layout) {
    this.last = [data, layout];
    if (!plotlyLoaded() || this.area.offsetParent === null) return;
    const full = {
      template: look.templates[theme()],
      height: this.height,
      margin: { l: 46, r: 10, t: 8, b: 40 },
      uirevision: "kept",
      ...(this.legendOf ? { showlegend: false } : {}),
      ...layout,
    };
    this.width = this.area.clientWidth;
    await window.Plotly.react(this.area, data, full, CONFIG);
    if (!this.drawn) {
      this.drawn = true;
      this.area.dataset.drawn = "1";
      this.area.on("plotly_hover", (event) => this.onHover?.(event.points[0]));
      this.area.on("plotly_unhover", () => this.onHover?.(null));
      this.area.on("plotly_click", (event) => this.onClick?.(event.points[0]));
    }
    this.tableBox.hidden = !this.table;
    if (this.tableBox.open) this.#fillTable();
  }

  redraw() {
    if (this.last) this.draw(...this.last);
  }

  #fillTable() {
    const { columns, rows } = this.table?.() ?? { columns: [], rows: [] };
    this.rows.textContent = "";
    this.rows.append(makeTable(columns, rows));
  }

  async save(kind) {
    this.menu.open = false;
    const Plotly = await loadPlotly();
    const name = `specviz-${this.key}`;
    if (kind === "png" || kind === "svg") {
      const picture = { data: this.area.data, layout: { ...this.area.layout, title: { text: this.title.textContent }, margin: { ...this.area.layout.margin, t: 80 }, showlegend: this.area.data.length > 1 } };
      const url = await Plotly.toImage(picture, { format: kind, width: 900, height: Math.round(this.height * 1.6), scale: kind === "png" ? 2 : 1 });
      download(url, `${name}.${kind}`);
      return;
    }
    const figure = JSON.stringify({ data: this.area.data, layout: { ...this.area.layout, width: undefined, shapes: undefined } });
    if (kind === "json") download(blobUrl(figure, "application/json"), `${name}.json`);
    else {
      const source = await (await fetch(look.plotly)).text();
      const safe = figure.replace(/</g, "\\u003c");
      const page = `<!doctype html><meta charset="utf-8"><title>${name}</title><div id="f"></div>`
        + `<script>${source}</script><script>const f=${safe};Plotly.newPlot("f",f.data,f.layout)</script>`;
      download(blobUrl(page, "text/html"), `${name}.html`);
    }
  }
}

/** A figure that the server has drawn: JSON with its title, what one learns from it and its table. */
export class ServerFigure extends Figure {
  constructor(key, options = {}) {
    super(key, { height: 360, ...options });
    this.setWords("\u00a0", "");
    this.table = () => this.given ?? { columns: [], rows: [] };
  }

  async take(json) {
    const { data, layout } = JSON.parse(json);
    const { title, learn, columns, rows } = layout.meta ?? {};
    this.setWords(title ?? "", learn ?? "");
    this.given = { columns: columns ?? [], rows: rows ?? [] };
    if (layout.height) {
      this.height = layout.height;
      this.area.style.height = `${layout.height}px`;
    }
    // The page sets the title as a heading, so the room that Plotly keeps for it is not needed.
    await this.draw(data, { ...layout, margin: { l: 52, r: 14, t: 26, b: 56, ...(layout.margin ?? {}) } });
  }
}

export function makeTable(columns, rows, caption) {
  return h("table", { class: "sv-table" },
    caption && h("caption", { text: caption }),
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col", text: name })))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", { text: cell === null || cell === undefined ? "" : String(cell) }))))));
}

export const blobUrl = (text, type) => URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));

export function download(url, name) {
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  if (url.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(url), 10000);
}
