// Take it away: the trace, its tables, a link; and bring a trace back.

import { ICONS, h, icon, on, t } from "./dom.js";
import { blobUrl, download } from "./plots.js";
import { Refused, ask } from "./server.js";
import { setup } from "./settings.js";
import { Trace, fate } from "./trace.js";

export class Files {
  constructor(app, stage) {
    this.app = app;
    this.stage = stage;
    this.note = h("p", { class: "sv-small sv-muted", role: "status" });
    this.failure = h("p", { class: "sv-error", role: "alert" });
    this.input = h("input", { type: "file", accept: ".jsonl,.part,.json,.txt", class: "sv-hidden", tabindex: "-1", tLabel: "files.open", on: { change: () => this.#open() } });
    this.recorded = h("select", { tLabel: "files.recorded", on: { change: () => this.recorded.value && app.openRecorded(this.recorded.value) } });
    const item = (key, run) => h("button", { type: "button", "data-do": key, t: `files.${key}`, on: { click: () => { this.menu.open = false; run(); } } });
    this.menu = h("details", { class: "sv-menu" },
      h("summary", { tLabel: "files.menu", tTitle: "files.menu" }, icon(ICONS.save)),
      h("div", { class: "sv-menu-list" }, item("trace", () => this.#trace()), item("iterations", () => this.#iterations()), item("tokens", () => this.#tokens()), item("link", () => this.#link()), item("open", () => this.input.click())));
    this.node = h("div", { class: "sv-files", "data-control": "files" }, this.recorded, this.menu, this.input);
    this.notes = h("div", {}, this.note, this.failure);
    this.fill();
    on("run", () => {
      this.note.textContent = "";
      this.failure.textContent = "";
    });
  }

  fill() {
    const { traces } = setup.boot;
    this.recorded.textContent = "";
    this.recorded.append(h("option", { value: "", text: t("files.recorded") }), ...traces.map((one) => h("option", { value: one.file, text: one.file.replace(/\.jsonl$/, "").replace(/[-_]/g, " ") })));
    this.recorded.hidden = traces.length < 2;
  }

  #trace() {
    const { trace } = this.stage;
    const lines = [trace.header, ...trace.iterations, trace.footer].filter(Boolean).map((record) => JSON.stringify(record));
    download(blobUrl(`${lines.join("\n")}\n`, "application/jsonl"), "specviz-run.jsonl");
  }

  #iterations() {
    const rows = this.stage.trace.iterations.map((it) => [it.index, it.start, it.draft?.length ?? 0, it.accepted, it.ending?.kind ?? "", it.stop, it.draft_seconds ?? 0, it.verify_seconds ?? 0]);
    this.#csv("iterations", ["index", "start", "drafted", "accepted", "ending", "stop", "draft_seconds", "verify_seconds"], rows);
  }

  #tokens() {
    const rows = this.stage.trace.iterations.flatMap((it) => [
      ...(it.draft ?? []).map((token, j) => [it.index, it.start + j, token.id, token.text, fate(it, j), token.confidence, token.target_probability ?? ""]),
      ...(it.ending ? [[it.index, it.start + it.accepted, it.ending.id, it.ending.text, it.ending.kind, "", it.ending.probability ?? ""]] : []),
    ]);
    this.#csv("tokens", ["iteration", "position", "id", "text", "fate", "confidence", "target_probability"], rows);
  }

  #csv(name, columns, rows) {
    // A cell that begins like a formula would be run by a spreadsheet: an apostrophe in front keeps it a text.
    const cell = (value) => {
      const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
      return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    };
    download(blobUrl(`\ufeff${[columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`, "text/csv"), `specviz-${name}.csv`);
  }

  async #link() {
    const link = new URL(this.app.link(), location.href).href;
    this.failure.textContent = "";
    try {
      await navigator.clipboard.writeText(link);
      this.note.textContent = t("files.copied");
    } catch {
      this.note.textContent = link; // no clipboard here: the link itself can be copied
    }
  }

  async #open() {
    const [file] = this.input.files;
    this.input.value = "";
    if (!file) return;
    this.note.textContent = "";
    this.failure.textContent = "";
    try {
      if (file.size > setup.boot.limits.upload) throw new Refused({ message: t("error.file_size", { limit: Math.round(setup.boot.limits.upload / 1e6) }) });
      const { run } = await ask("upload", { text: await file.text() });
      const trace = new Trace();
      for (let cursor = 0, more = true; more;) {
        const answer = await ask("pull", { run, cursor });
        JSON.parse(answer.records).forEach((record) => trace.add(record));
        ({ cursor, more } = answer);
      }
      this.app.stage(trace, { kind: "uploaded", check: trace.footer ? null : { kind: "unfinished" } });
    } catch (error) {
      this.failure.textContent = error.message || t("error.lost");
    }
  }
}
