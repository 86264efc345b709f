"""A probe and a policy -> the iterations that a real run would log, without running a model. Numpy only.

Why this is exact under greedy decoding: as long as drafts agree with the output, the drafter's context is the output, so
a draft that begins at t is the run of right tokens from t on, then one wrong token, then what that wrong token leads to;
all three are in the probe. How long the draft becomes is the policy's business (``_stops``), what the target keeps of it
is min(drafted, run of right tokens).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.analysis.probe import Probe
from specviz.errors import UsageError

POLICIES = ("autoregressive", "constant", "heuristic", "dynamic", "oracle")
NEVER = 1 << 40  # a draft length that no lookahead reaches


@dataclass(frozen=True)
class Policy:
    """When drafting stops. lookahead: most tokens an iteration (heuristic: at first). threshold: confidence (0..1) of a
    token behind which drafting stops; 0 switches that off. The oracle and autoregressive need neither."""

    name: str = "dynamic"
    lookahead: int = 20
    threshold: float = 0.0

    def __post_init__(self):
        if self.name not in POLICIES:
            raise UsageError(f"policy {self.name!r}: choose one of {', '.join(POLICIES)}")
        if self.lookahead < 0:
            raise UsageError(f"lookahead={self.lookahead}: choose 0 or more")

    @classmethod
    def of(cls, config: Any) -> Policy:
        """The policy of a method's configuration (``decoding.MethodConfig``, filled)."""
        name = config.name.removeprefix("early-exit").removeprefix("-") or "constant"
        if name not in POLICIES:
            raise UsageError(f"the method {config.name} does not draft with a model: a probe says nothing of it")
        return cls(name, config.lookahead or 0, config.threshold or 0.0)


@dataclass(frozen=True, slots=True)
class SimulatedIteration:
    """One iteration, in the log's words (see ``trace.Iteration``). lookahead: the policy's limit in this iteration."""

    index: int
    start: int  # as in the log: prompt included
    drafted: int
    accepted: int
    stop: str
    ending: str | None  # "correction", "bonus", or None behind an accepted end-of-sequence token
    lookahead: int

    @property
    def tokens(self) -> int:
        """Tokens that it adds to the output."""
        return self.accepted + (self.ending is not None)


@dataclass(frozen=True)
class Simulation:
    """What a run would log. row: the probe's row.

    exact: False only where the heuristic's lookahead grew beyond what the probe's continuations hold; there a draft
    behind a wrong token is taken to go on unstopped. A larger ``max_lookahead`` of the probe makes it exact.
    """

    policy: Policy
    row: int
    iterations: tuple[SimulatedIteration, ...]
    exact: bool = True

    @property
    def drafted(self) -> int:
        return sum(iteration.drafted for iteration in self.iterations)

    @property
    def accepted(self) -> int:
        return sum(iteration.accepted for iteration in self.iterations)

    @property
    def tokens(self) -> int:
        return sum(iteration.tokens for iteration in self.iterations)


def simulate(probe: Probe, policy: Policy, exit_layer: int | None = None) -> Simulation:
    """The iterations of a run with this policy. UsageError where the probe does not hold the exit layer or lookahead."""
    row = 0 if policy.name == "autoregressive" else probe.row_of(exit_layer)
    check_lookahead(probe, policy.name, policy.lookahead)
    stops = Stops(probe, row, [policy.threshold if policy.name in ("dynamic", "heuristic", "constant") else 0.0])
    eos, low, known = stops.eos.tolist(), stops.low[0].tolist(), stops.known.tolist()
    run, budget = probe.run[row].tolist(), budgets(probe).tolist()
    ends_at_eos = probe.end == "eos"

    iterations: list[SimulatedIteration] = []
    start, lookahead, exact = 0, policy.lookahead, True
    while start < probe.length:
        if policy.name == "oracle":
            lookahead = run[start]
        elif policy.name == "autoregressive":
            lookahead = 0
        most = min(lookahead, budget[start])
        natural = min(eos[start], low[start])
        drafted = min(natural, most)
        exact = exact and drafted <= known[start]
        accepted = min(drafted, run[start])
        if drafted == 0 or natural > most:
            stop = ("oracle" if policy.name == "oracle" else "length") if lookahead <= budget[start] else "budget"
        else:
            stop = "eos" if eos[start] <= low[start] else "confidence"
        if policy.name == "autoregressive":
            stop = "length"
        ended = ends_at_eos and accepted > 0 and start + accepted == probe.length
        ending = None if ended else "bonus" if accepted == drafted else "correction"
        iterations.append(
            SimulatedIteration(len(iterations), probe.offset + start, drafted, accepted, stop, ending, lookahead)
        )
        start += accepted + 1
        if policy.name == "heuristic":
            lookahead = lookahead + 2 if accepted == drafted else max(1, lookahead - 1)
    return Simulation(policy, row, tuple(iterations), exact)


class Stops:
    """Where a draft that begins at each position would stop by itself, for one row and T thresholds.

    Lengths count drafted tokens, the stopping one included; NEVER where nothing stops it.
    eos (N,): behind an end-of-sequence token. low (T, N): behind a token whose confidence is below the threshold.
    known (N,): how many tokens of the draft the probe holds.
    """

    def __init__(self, probe: Probe, row: int, thresholds: Sequence[float]):
        n = probe.length
        at = np.arange(n)
        wrong = at + probe.run[row, :n]  # position of the first wrong token; N where all are right to the end
        within = np.minimum(wrong, n - 1)
        line = np.where(wrong < n, probe.wrong_index[row, within], -1)
        dropped = (wrong < n) & (line < 0)  # nothing is drafted at `wrong`: the draft model's context ends there
        reach = np.where(wrong < n, wrong - at + ~dropped, n - at)  # right tokens and the wrong one
        has_tail = line >= 0
        tails = np.flatnonzero(probe.wrong_index[row] >= 0)  # the row's wrong positions
        lines = probe.wrong_index[row, tails]
        ids, confidence = probe.wrong_ids[lines], probe.wrong_confidence[lines]
        place = np.zeros(n, np.int64)
        place[tails] = np.arange(len(tails))
        tail_of = place[within]

        eos = np.isin(probe.draft_ids[row], probe.eos_ids)
        tail_eos = _first(np.isin(ids, probe.eos_ids))
        # The only end-of-sequence token on the right path is the output's last; a wrong one may stand at `wrong`.
        stops_at_wrong = (wrong < n) & eos[within]
        right_to_eos = (wrong >= n) & (probe.end == "eos")
        self.eos = np.where(stops_at_wrong, reach, np.where(right_to_eos, n - at, NEVER))
        follow = has_tail & ~stops_at_wrong
        self.eos[follow] = np.minimum((reach + _take(tail_eos, tail_of))[follow], NEVER)
        self.known = reach.copy()
        self.known[follow] += _take((ids >= 0).sum(axis=1), tail_of)[follow]
        self.known[(wrong >= n) | dropped | (self.eos < NEVER)] = NEVER
        if len(tails):  # a tail that ends at the limit or the context is cut there by the budget anyway
            self.known[self.known >= budgets(probe)[:n]] = NEVER

        limits = np.asarray(thresholds, np.float64)[:, None]
        below = probe.confidence[row].astype(np.float64)[None, :] < limits  # (T, N)
        below &= probe.draft_ids[row] >= 0
        places = np.where(below, at, NEVER)
        following = np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1]  # next low token at or behind each position
        self.low = np.full(below.shape, NEVER)
        inside = following < (at + reach)[None, :]
        if len(tails):
            # Running minimum: the first low token is where it falls below, so counting what stays above finds it.
            lowest = np.minimum.accumulate(np.where(ids >= 0, confidence.astype(np.float64), np.inf), axis=1)
            above = (lowest[None, :, :] >= limits[:, :, None]).sum(axis=2)  # (T, tails)
            tail_low = np.where(above < ids.shape[1], above + 1, NEVER)
            self.low = np.where(has_tail, np.minimum(reach + tail_low[:, tail_of], NEVER), NEVER)
        self.low = np.where(inside, following - at + 1, self.low)


def _first(flags: np.ndarray) -> np.ndarray:
    """(W, J) bool -> (W,) 1 + index of the first True, NEVER where there is none."""
    if not flags.size:
        return np.full(len(flags), NEVER)
    return np.where(flags.any(axis=1), flags.argmax(axis=1) + 1, NEVER)


def _take(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    return values[at] if len(values) else np.zeros(len(at), np.int64)


def budgets(probe: Probe) -> np.ndarray:
    """(N,) most tokens that may be drafted at each position: the target's own token needs a place too, and a draft
    model with a shorter context window stops drafting at its end."""
    at = np.arange(probe.length)
    return np.minimum(probe.limit - at - 1, np.maximum(probe.draft_context - (probe.offset + at) + 1, 0))


def check_lookahead(probe: Probe, name: str, lookahead: int) -> None:
    if name not in ("oracle", "autoregressive") and lookahead > probe.max_lookahead:
        raise UsageError(
            f"lookahead={lookahead}: this probe was measured for up to {probe.max_lookahead}; "
            "choose less, or measure one with a larger max_lookahead"
        )


def nearest_tie(probe: Probe, simulation: Simulation, iteration: SimulatedIteration) -> float:
    """How close this iteration came to another outcome by rounding: the smallest distance of two competing numbers.

    Of each drafted token the top two logits, its confidence and the threshold, and the target's top two logits at the
    positions it decided on. A real run may differ from the simulated one only where this is about as small as rounding.
    """
    row, start = simulation.row, iteration.start - probe.offset
    right = min(iteration.accepted, iteration.drafted)
    wrong = start + right
    margins = [probe.margin[row, start:wrong], probe.target_margin[start : wrong + 1]]
    confidences = probe.drafted(row, start, iteration.drafted)[1]
    if iteration.drafted > right and wrong < probe.length:
        line = probe.wrong_index[row, wrong]
        margins += [probe.margin[row, wrong : wrong + 1], probe.wrong_margin[line, : iteration.drafted - right - 1]]
    gaps = [np.abs(np.concatenate(margins))]
    if simulation.policy.threshold > 0:
        gaps.append(np.abs(confidences.astype(np.float64) - simulation.policy.threshold))
    return float(np.concatenate(gaps).min(initial=np.inf))
