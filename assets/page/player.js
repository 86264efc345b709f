// The clock of a run: play, pause, step, scrub, speed. Knows nothing of how a run is drawn.

export const SPEEDS = [1, 1 / 2, 1 / 5, 1 / 10, 1 / 20, 1 / 50, 1 / 100, 1 / 200];

// Opening a run, a watcher should have about this long to see it: slower than the machine, faster than boredom.
const COMFORTABLE_SECONDS = 24;

export class Player extends EventTarget {
  #frame = 0;
  #last = 0;

  constructor(trace) {
    super();
    this.speed = 1;
    this.load(trace);
  }

  load(trace) {
    this.pause();
    this.trace = trace;
    this.tick = 0;
    this.time = 0; // seconds of the run's own clock
    this.following = false; // a live run is drawn as it comes
    this.#say("load");
  }

  /** The listed speed at which the whole run takes a comfortable time. */
  comfortable() {
    const wanted = this.trace.duration / COMFORTABLE_SECONDS;
    return SPEEDS.find((speed) => speed <= wanted * 1.35) ?? SPEEDS.at(-1);
  }

  get playing() {
    return this.#frame !== 0;
  }

  get atEnd() {
    return this.tick >= this.trace.ticks;
  }

  follow(whether) {
    this.following = whether;
    if (whether) this.pause();
    this.#say("state");
  }

  /** More records came: a live run shows them at once. */
  grown() {
    if (this.following) this.seek(this.trace.ticks, true);
    else this.#say("tick");
  }

  play() {
    if (this.playing) return;
    this.following = false;
    if (this.atEnd) this.seek(0, true);
    this.#last = performance.now();
    const step = (now) => {
      const passed = Math.min(0.1, (now - this.#last) / 1000); // a hidden tab must not leap ahead
      this.#last = now;
      this.time += passed * this.speed;
      const tick = this.trace.tickAtTime(this.time);
      if (tick >= this.trace.ticks) {
        this.#frame = 0;
        this.#move(this.trace.ticks);
        this.#say("state");
        return;
      }
      this.#frame = requestAnimationFrame(step);
      if (tick !== this.tick) this.#move(tick);
    };
    this.#frame = requestAnimationFrame(step);
    this.#say("state");
  }

  pause() {
    if (!this.#frame) return;
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#say("state");
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  seek(tick, quiet = false) {
    const bounded = Math.max(0, Math.min(this.trace.ticks, tick));
    this.time = bounded > 0 ? this.trace.times[bounded - 1] : 0;
    if (!quiet) this.following = false;
    this.#move(bounded);
  }

  stepToken(direction) {
    this.pause();
    this.seek(this.tick + direction);
  }

  /** To the next or the previous finished verification. */
  stepIteration(direction) {
    this.pause();
    const { index, verified } = this.trace.at(this.tick);
    if (direction > 0) this.seek(this.trace.endOf(Math.min(verified ? index + 1 : index, this.trace.iterations.length - 1)));
    else this.seek(this.trace.endOf(index - 1));
  }

  setSpeed(speed) {
    this.speed = speed;
    this.#say("state");
  }

  #move(tick) {
    this.tick = tick;
    this.#say("tick");
  }

  #say(name) {
    this.dispatchEvent(new Event(name));
  }
}
