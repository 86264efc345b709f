// The page. Loaded from the document's head, it draws itself before Gradio is there, on a recorded run, and moves
// into Gradio's component when that is mounted.

import { ICONS, clear, emit, h, icon, language, on, retranslate, setTexts, t } from "./dom.js";
import { look, setTheme, theme } from "./look.js";
import { Explore } from "./explore.js";
import { Layers } from "./layers.js";
import { loadPlotly } from "./plots.js";
import { Published } from "./published.js";
import { Race } from "./race.js";
import { connect } from "./server.js";
import { change, fromQuery, setup, toQuery } from "./settings.js";
import { parseLines } from "./trace.js";
import { Walk } from "./walk.js";
import { Watch } from "./watch.js";

const VIEWS = { watch: Watch, explore: Explore, layers: Layers, race: Race, published: Published, walk: Walk };

class App {
  constructor(boot) {
    setup.boot = boot;
    Object.assign(look, boot.look);
    this.query = new URLSearchParams(location.search);
    setTexts(boot.texts, pickLanguage(this.query, boot.languages));
    setTheme(pickTheme(this.query));
    document.documentElement.lang = language();
    document.title = t("app.title");
    const wanted = fromQuery(this.query);
    change({ pair: boot.pairs[0].name, method: boot.pairs.find((one) => one.name === (wanted.pair ?? boot.pairs[0].name))?.method ?? "", prompt: firstExample(boot, wanted.pair), ...wanted }, "start");
    this.hidden = new Set((this.query.get("hide") ?? "").split(",").map((name) => name.trim()).filter(Boolean));
    this.#build();
    this.#hideIn(this.root);
    const first = Object.keys(VIEWS).find((name) => !this.hidden.has(name)) ?? "watch";
    const asked = this.query.get("view");
    this.show(asked in VIEWS && !this.hidden.has(asked) ? asked : first);
    this.#open();
    on("settings", () => this.#remember());
    on("run", ({ file }) => !file && this.query.delete("trace"));
    on("run", (run) => run.request && this.measured([{ pair: run.request.pair, method: run.trace.header?.method ?? {}, trace: run.trace, check: run.check }]));
  }

  /** Runs that this visitor has measured, for the table of view 5. */
  measured(runs) {
    this.view("published").add(runs);
  }

  /** Shows a trace on the stage of Watch. */
  stage(trace, source) {
    const { stage } = this.view("watch");
    stage.show(trace, source);
    stage.player.setSpeed(stage.player.comfortable());
    emit("run", { trace });
    this.show("watch");
    stage.player.play();
    this.root.scrollIntoView({ block: "start" });
  }

  /** Runs what the form says, in sight. */
  runNow() {
    this.show("watch");
    this.root.scrollIntoView({ block: "start" });
    return this.view("watch").run();
  }

  #build() {
    this.views = {};
    this.tabs = {};
    const tabs = h("div", { class: "sv-tabs", role: "tablist", tLabel: "tabs.label" });
    const panels = h("div", { class: "sv-panels" });
    for (const name of Object.keys(VIEWS)) {
      this.tabs[name] = h("button", { type: "button", role: "tab", id: `sv-tab-${name}`, "data-control": name, "aria-controls": `sv-panel-${name}`, t: `view.${name}`, on: { click: () => this.show(name) } });
      tabs.append(this.tabs[name]);
      this.views[name] = { panel: h("div", { class: "sv-panel", role: "tabpanel", id: `sv-panel-${name}`, "aria-labelledby": `sv-tab-${name}` }) };
      panels.append(this.views[name].panel);
    }
    tabs.addEventListener("keydown", (event) => this.#tabKey(event));
    const languages = h("div", { class: "sv-switch", role: "group", tLabel: "language.label", "data-control": "language" },
      setup.boot.languages.map((one) => h("button", { type: "button", lang: one, "data-language": one, text: setup.boot.texts[one]["language.name"], on: { click: () => this.setLanguage(one) } })));
    this.languages = languages;
    this.themeButton = h("button", { type: "button", class: "sv-icon", "data-do": "theme", "data-control": "theme", on: { click: () => { setTheme(theme() === "dark" ? "light" : "dark"); this.#headWords(); this.#remember(); } } });
    this.root = h("div", { id: "sv-app", class: "sv-app" },
      h("a", { class: "sv-skip", href: "#sv-main", t: "skip", on: { click: (event) => { event.preventDefault(); this.main.focus(); } } }),
      h("header", { class: "sv-header" },
        h("div", { class: "sv-brand" },
          mark(),
          h("div", {}, h("h1", { text: "specviz" }), h("p", { class: "sv-tagline", t: "app.tagline" }))),
        h("div", { class: "sv-head-tools" }, languages, this.themeButton)),
      this.intro = h("p", { class: "sv-intro", t: "app.intro" }),
      tabs,
      this.main = h("div", { id: "sv-main", tabindex: "-1" }, panels),
      this.live = h("p", { class: "sv-hidden", role: "status", "aria-live": "polite" }));
    this.#headWords();
    on("language", () => this.#headWords());
  }

  #headWords() {
    const next = theme() === "dark" ? "light" : "dark";
    clear(this.themeButton).append(icon(ICONS[next]));
    this.themeButton.setAttribute("aria-label", t(`theme.${next}`));
    this.themeButton.title = t(`theme.${next}`);
    this.languages.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.language === language())));
  }

  #tabKey(event) {
    const names = Object.keys(this.tabs).filter((name) => !this.hidden.has(name));
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!step) return;
    event.preventDefault();
    const now = names.indexOf(this.current) + step;
    const next = names[step === -Infinity ? 0 : step === Infinity ? names.length - 1 : (now + names.length) % names.length];
    this.show(next);
    this.tabs[next].focus();
  }

  view(name) {
    const place = this.views[name];
    if (!place.view) {
      place.view = new VIEWS[name](this);
      place.panel.append(place.view.node);
      this.#hideIn(place.panel);
    }
    return place.view;
  }

  show(name) {
    this.current = name;
    for (const [other, place] of Object.entries(this.views)) {
      place.panel.hidden = other !== name;
      this.tabs[other].setAttribute("aria-selected", String(other === name));
      this.tabs[other].tabIndex = other === name ? 0 : -1;
    }
    this.intro.hidden = name !== "watch";
    const view = this.view(name);
    if (this.root.isConnected) view.shown?.();
    this.#remember();
  }

  /** The first thing to see: the run that the link names, else the first recorded one, playing. */
  #open() {
    const { traces, first } = setup.boot;
    const wanted = this.query.get("trace");
    const watch = this.view("watch");
    const start = (text, file) => {
      const trace = parseLines(text);
      if (!trace.header) return;
      const { check: checked } = traces.find((one) => one.file === file) ?? {};
      watch.stage.show(trace, { kind: file ? "recorded" : "uploaded", file, check: trace.footer ? checked : { kind: "stopped" } });
      watch.stage.player.setSpeed(watch.stage.player.comfortable());
      emit("run", { trace, file });
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) watch.stage.player.seek(trace.ticks);
      else watch.stage.player.play();
    };
    this.openText = (text) => start(text, null);
    this.openRecorded = async (file) => {
      start(await (await fetch(`${setup.boot.base}traces/${encodeURIComponent(file)}`)).text(), file);
      this.query.set("trace", file);
      this.#remember();
    };
    if (wanted && traces.some((one) => one.file === wanted) && wanted !== first?.file) this.openRecorded(wanted);
    else if (first) start(first.text, first.file);
  }

  setLanguage(next) {
    document.documentElement.lang = next;
    retranslate(this.root, next);
    document.title = t("app.title");
    this.#remember();
  }

  /** Takes away what the link's `hide=` names: views by their name in links, controls by that of their parameter. */
  #hideIn(root) {
    root.querySelectorAll("[data-control]").forEach((node) => node.classList.toggle("sv-gone", this.hidden.has(node.dataset.control)));
  }

  /** Keeps the address in step with the page, so that copying it is enough. */
  #remember() {
    if (!this.root) return;
    clearTimeout(this.rememberTimer);
    this.rememberTimer = setTimeout(() => history.replaceState(history.state, "", this.link()), 300);
  }

  link() {
    const kept = { view: this.current === "watch" ? null : this.current, lang: language(), theme: theme(), hide: this.query.get("hide"), trace: this.query.get("trace") };
    return `${location.pathname}?${toQuery(kept)}`;
  }

  announce(text) {
    this.live.textContent = text;
  }
}

function mark() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 40 40");
  svg.setAttribute("class", "sv-mark");
  svg.setAttribute("aria-hidden", "true");
  // Three guesses, two of them kept, and the target's own token: the whole idea in four bars.
  const bars = [[3, "accepted", 1], [12, "accepted", 1], [21, "refused", 0.55], [30, "correction", 1]];
  for (const [x, name, opacity] of bars) {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [key, value] of Object.entries({ x, y: name === "correction" ? 6 : 13, width: 7, height: name === "correction" ? 28 : 14, rx: 2.5, opacity })) rect.setAttribute(key, value);
    rect.style.fill = `var(--sv-${name})`;
    svg.append(rect);
  }
  return svg;
}

function pickLanguage(query, languages) {
  const asked = [query.get("lang"), ...(navigator.languages ?? [navigator.language])].filter(Boolean);
  for (const one of asked) {
    const short = one.toLowerCase().split("-")[0];
    if (languages.includes(short)) return short;
  }
  return "en";
}

function pickTheme(query) {
  const asked = query.get("theme") ?? query.get("__theme");
  if (asked === "dark" || asked === "light") return asked;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function firstExample(boot, pairName) {
  const examples = boot.examples[pairName ?? boot.pairs[0].name] ?? boot.examples.default;
  return Object.values(examples)[0] ?? "";
}

function start() {
  // Gradio's <base href="./"> changes nothing but addresses of a "#fragment": Plotly then writes the whole address of
  // the page into its patterns, and they are gone when the page's address changes.
  document.querySelector('base[href="./"]')?.remove();
  const boot = JSON.parse(document.getElementById("sv-boot").textContent);
  const app = new App(boot);
  document.body.prepend(app.root);
  document.documentElement.classList.add("sv-on");
  app.views[app.current].view?.shown?.();
  // Plotly is the heaviest thing here: it comes when something already moves.
  const bring = () => loadPlotly().then(() => emit("plotly")).catch(() => app.announce(t("error.plotly")));
  setTimeout(() => ("requestIdleCallback" in window ? requestIdleCallback(bring, { timeout: 1500 }) : bring()), 600);
  return app;
}

/** Called by Gradio's component when it is mounted. */
function mount(element, tools) {
  const place = element.querySelector(".sv-mount") ?? element;
  const scroll = window.scrollY;
  const focused = document.activeElement;
  place.append(window.specviz.app.root);
  if (window.specviz.app.root.contains(focused)) focused.focus({ preventScroll: true });
  window.scrollTo(0, scroll);
  document.documentElement.classList.add("sv-mounted");
  connect(tools);
}

// The script may stand in the document twice (Gradio repeats what is in the head); the page exists once.
if (!window.specviz?.app) {
  window.specviz = { app: start(), mount };
  if (window.specvizWaiting) mount(...window.specvizWaiting); // Gradio was faster
}
