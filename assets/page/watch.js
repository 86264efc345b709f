// View 1, Watch: a prompt in, and every guess and verdict as it happens.

import { emit, h, t } from "./dom.js";
import { Controls } from "./controls.js";
import { Files } from "./files.js";
import { LiveFigures } from "./live.js";
import { Job, progressOf } from "./server.js";
import { request } from "./settings.js";
import { Stage } from "./stage.js";
import { Trace } from "./trace.js";

export class Watch {
  constructor(app) {
    this.app = app;
    this.stage = new Stage();
    this.figures = new LiveFigures(this.stage.player);
    this.files = new Files(app, this.stage);
    this.stage.head.append(this.files.node);
    this.stage.node.append(this.files.notes);
    this.controls = new Controls({ run: () => this.run(), stop: () => this.stop() });
    this.node = h("div", { class: "sv-watch" },
      this.stage.node,
      this.controls.node,
      h("section", { class: "sv-figures-wrap", tLabel: "figures.label" }, this.figures.node));
  }

  shown() {
    this.figures.draw();
  }

  stop() {
    this.job?.stop();
  }

  /** Runs the form's request; what comes is on the stage at once. */
  async run() {
    if (this.controls.running) return;
    this.controls.fail(null);
    this.controls.setRunning(true);
    this.controls.say(t("run.sending"));
    const trace = new Trace();
    const job = new Job("decode", request());
    this.job = job;
    this.request = job.request;
    let onStage = false;
    try {
      const end = await job.run({
        onRecords: (records) => {
          records.forEach((record) => trace.add(record));
          if (!onStage) {
            onStage = true;
            this.stage.show(trace, { kind: "live" });
            this.stage.player.follow(true);
          }
          this.stage.grown();
        },
        onStatus: (status) => this.#status(status, trace),
      });
      this.stage.finished({ kind: "live", run: job.id, check: this.#check(end) });
      this.controls.say(end.state === "stopped" ? t("run.stopped") : t("run.done", { tokens: trace.sums(trace.ticks).emitted }));
      this.stage.player.setSpeed(this.stage.player.comfortable());
      emit("run", { trace, run: job.id, request: job.request, check: end.check });
    } catch (error) {
      this.controls.say("");
      this.controls.fail(error.message ? error : { message: t("error.lost") });
      if (onStage) this.stage.finished({ kind: "live", check: { kind: "stopped" } });
    } finally {
      this.job = null;
      this.controls.setRunning(false);
      this.stage.player.follow(false);
    }
  }

  #status(status, trace) {
    const { state } = status;
    if (state === "waiting") this.controls.say(t(status.waiting > 0 ? "run.waiting" : "run.starting", { n: status.waiting }));
    else if (state === "loading") {
      const { text, share } = progressOf(status.progress);
      this.controls.say(text, share);
    } else if (state === "running") this.controls.say(t("run.running", { tokens: trace.sums(trace.ticks).emitted }));
    else if (state === "checking") {
      this.controls.say(t("run.checking"));
      if (!this.stage.check) this.stage.finished({ check: { kind: "checking" } });
    }
  }

  #check(end) {
    return end.check ?? { kind: end.state === "stopped" ? "stopped" : (this.request?.temperature ?? 0) > 0 ? "sampled" : "unchecked" };
  }
}

