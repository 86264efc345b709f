// A run as the page holds it: the records of the log, and the moments at which something happened.
//
// A moment ("tick") is one drafted token or one verification. An iteration of k drafted tokens has k + 1 of
// them, so a position in the run is one whole number, and stepping, scrubbing and playing are the same thing.

export class Trace {
  constructor() {
    this.header = null;
    this.iterations = [];
    this.footer = null;
    this.times = []; // seconds from the start of decoding to each tick
    this.firstTick = []; // per iteration: how many ticks lie before it
    this.totals = []; // per iteration: sums up to and including it
    this.duration = 0;
  }

  add(record) {
    if (record.kind === "header") this.header = record;
    else if (record.kind === "footer") this.footer = record;
    else if (record.kind === "iteration") this.#addIteration(record);
  }

  #addIteration(record) {
    const draft = record.draft ?? [];
    const drafting = record.draft_seconds ?? 0;
    const verifying = record.verify_seconds ?? 0;
    const begin = this.duration;
    this.firstTick.push(this.times.length);
    draft.forEach((_, j) => this.times.push(begin + (drafting * (j + 1)) / draft.length));
    this.duration = begin + drafting + verifying;
    this.times.push(this.duration);
    const before = this.totals.at(-1) ?? { drafted: 0, accepted: 0, emitted: 0, seconds: 0, drafting: 0, verifying: 0 };
    this.totals.push({
      drafted: before.drafted + draft.length,
      accepted: before.accepted + record.accepted,
      emitted: before.emitted + record.accepted + (record.ending ? 1 : 0),
      seconds: this.duration,
      drafting: before.drafting + drafting,
      verifying: before.verifying + verifying,
    });
    this.iterations.push(record);
  }

  get ticks() {
    return this.times.length;
  }

  /** Where tick number `tick` (1-based; 0 is before everything) lies: which iteration, and how far in it. */
  at(tick) {
    if (tick <= 0) return { index: -1, step: 0, verified: true };
    let low = 0;
    let high = this.firstTick.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.firstTick[middle] < tick) low = middle;
      else high = middle - 1;
    }
    const step = tick - this.firstTick[low];
    const drafted = this.iterations[low].draft?.length ?? 0;
    return { index: low, step, verified: step > drafted };
  }

  /** Ticks passed when iteration `index` has been verified. */
  endOf(index) {
    return index < 0 ? 0 : this.firstTick[index] + (this.iterations[index].draft?.length ?? 0) + 1;
  }

  tickAtTime(time) {
    let low = 0;
    let high = this.times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Sums over the iterations that are verified at this tick. */
  sums(tick) {
    const { index, verified } = this.at(tick);
    const count = verified ? index + 1 : index;
    const none = { drafted: 0, accepted: 0, emitted: 0, seconds: 0, drafting: 0, verifying: 0 };
    const sums = count > 0 ? this.totals[count - 1] : none;
    // The footer's seconds also hold the loop itself; at the end the honest figure is that one.
    const whole = this.footer && count === this.iterations.length ? this.footer.seconds : sums.seconds;
    return { ...sums, seconds: whole, iterations: Math.max(0, count) };
  }

  get text() {
    const pieces = this.iterations.map((it) => {
      const kept = (it.draft ?? []).slice(0, it.accepted).map((token) => token.text).join("");
      return kept + (it.ending?.text ?? "");
    });
    return pieces.join("") + (this.footer?.tail ?? "");
  }
}

/** What became of each drafted token: the words that strip, figures and details share. */
export function fate(iteration, j) {
  if (j < iteration.accepted) return "accepted";
  return "refused";
}

/**
 * Was this iteration refused a token? If not, everything compared was accepted, and its oracle lookahead is only
 * known to be at least the accepted count.
 */
export const refused = (iteration) => iteration.ending?.kind === "correction";

export function parseLines(text) {
  const trace = new Trace();
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    try {
      trace.add(JSON.parse(line));
    } catch {
      break; // what follows a broken line cannot be trusted; uploads are checked on the server
    }
  }
  return trace;
}
