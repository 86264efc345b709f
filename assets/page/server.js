// The way to the server: functions that answer at once, and the one event that makes the models work.
//
// The page is drawn before Gradio is there; calls made until then wait for it.

import { language, seconds, t } from "./dom.js";

let connected;
const connection = new Promise((resolve) => {
  connected = resolve;
});

/** Called once, from the component's js_on_load. */
export function connect({ server, trigger }) {
  connected({ server, trigger });
}

/** An error that the server explained; `field` names the control that it belongs to. */
export class Refused extends Error {
  constructor({ message, field }) {
    super(message);
    this.field = field;
  }
}

/** Calls a function of the server with one plain object. */
export async function ask(name, values = {}) {
  const { server } = await connection;
  const answer = await server[name]({ ...values, lang: language() });
  if (answer?.error) throw new Refused(answer.error);
  return answer;
}

const PULL_MS = 120;
const AGAIN_MS = 15000;

/**
 * Sends a request to the model queue and pulls what it makes behind a cursor.
 * onRecords(records), onStatus(status) while it runs; resolves with the last status.
 */
export class Job {
  constructor(kind, request) {
    this.kind = kind;
    this.request = request;
    this.stopped = false;
  }

  async run({ onRecords, onStatus }) {
    const { run } = await ask("submit", { kind: this.kind, request: this.request });
    this.id = run;
    if (this.stopped) this.stop();
    const { trigger } = await connection;
    trigger("work", { run });
    let cursor = 0;
    let asked = performance.now();
    for (;;) {
      const answer = await ask("pull", { run, cursor });
      // Gradio's queue was full of programs' calls: ask again. Whoever comes second finds the run taken.
      if (answer.state === "waiting" && !answer.waiting && performance.now() - asked > AGAIN_MS) {
        asked = performance.now();
        trigger("work", { run });
      }
      cursor = answer.cursor;
      const records = JSON.parse(answer.records);
      if (records.length) onRecords?.(records);
      onStatus?.(answer);
      if (answer.more) continue;
      if (["done", "stopped", "failed"].includes(answer.state)) {
        if (answer.state === "failed") throw new Refused(answer.failure);
        return answer;
      }
      await new Promise((resolve) => setTimeout(resolve, PULL_MS));
    }
  }

  stop() {
    this.stopped = true;
    if (this.id) ask("stop", { run: this.id }).catch(() => {});
  }
}

const STAGES = { downloading: "download", converting: "convert", loading: "load", waiting: "wait" };

/** What the server does before a run: a sentence, and how far it is (0..1, NaN where nobody knows). */
export function progressOf(progress) {
  const { stage = "", done = 0, total = null, unit = "" } = progress ?? {};
  const [verb, ...rest] = stage.split(" ");
  const what = t(verb in STAGES ? `stage.${STAGES[verb]}` : "stage.other", { name: verb in STAGES ? rest.join(" ") : stage });
  const megabytes = (bytes) => Math.round(bytes / 1e6);
  let amount = "";
  if (unit === "bytes") amount = `${megabytes(done)}${total ? ` / ${megabytes(total)}` : ""}\u202fMB`;
  else if (unit === "seconds" && done >= 1) amount = seconds(done);
  return { text: t("run.loading", { stage: what, amount }).trim(), share: total ? Math.min(1, done / total) : NaN };
}
