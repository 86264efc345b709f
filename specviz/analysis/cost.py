"""What simulated iterations cost: measured parts -> predicted seconds, tokens a second, speed-up. Numpy only.

An iteration that drafts k tokens costs, with a draft model,
    k draft steps, a little more for the first, and one more token to read behind a full acceptance;
    a target forward over k + 1 tokens;
and with early exit at layer E of L,
    k + 1 passes of one token through E layers, k of them with the head and a choice, and something once;
    L - E layers over k + 1 tokens, and the head over them;
and both the loop's own time (rewinding, spelling, logging): a part for the iteration and a part for each drafted token.
Plain decoding is a target forward of 1 token and the loop's time for each token. The parts are measured by ``timing.py``
on the drafters and verifiers of the decoding core, as they run. Each is a median with its quartiles; the low and high
prediction take all lower and all upper quartiles at once. Costs hold for the context length they were measured at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields

import numpy as np

from specviz.analysis.grid import Grid, simulate_grid
from specviz.analysis.probe import Probe
from specviz.analysis.simulate import SimulatedIteration, Simulation
from specviz.errors import UsageError

MEDIAN, LOW, HIGH = 0, 1, 2
Timing = tuple[float, float, float]  # seconds: median, lower quartile, upper quartile


@dataclass(frozen=True)
class Costs:
    """Seconds of every part, measured on one machine for one target and, maybe, one draft model. See the module."""

    target: str
    draft: str | None
    device: str
    threads: int
    stream: str  # how the target's layers are run: "public", "split", "lean"
    context: int  # positions in the caches while measuring
    sizes: tuple[int, ...]  # S, tokens in one verification
    layers: int
    full: tuple[Timing, ...]  # (S,) verification by all layers: forward, head, choices
    # Early exit; None where layers cannot be run apart.
    verify_layer: tuple[Timing, ...] | None = None  # (S,) one layer of a verification that starts behind an exit
    verify_rest: tuple[Timing, ...] | None = None  # (S,) the rest of it: head, choices, the call
    draft_layer: Timing | None = None  # one layer of a drafted token
    draft_rest: Timing | None = None  # the rest of a drafted token: embedding, head, choice, confidence
    draft_once: Timing | None = None  # what a draft phase costs beside its tokens and layers
    # A draft model; None where there is none.
    step: Timing | None = None  # one drafted token
    first: Timing | None = None  # what the first token of a draft costs more
    behind_full: Timing | None = None  # and again behind a full acceptance, with one more token to read
    head: Timing | None = None  # norm and head for one token; part of the others, for the record
    iteration: Timing = (0.0, 0.0, 0.0)  # the loop's own time for an iteration
    token: Timing = (0.0, 0.0, 0.0)  # and for each drafted token
    prefill_token: float = 0.0  # the target reads a prompt, for each of its tokens
    repetitions: int = 0
    load: float = 0.0  # the machine's load while measuring, as processes that wanted a core
    info: dict = field(default_factory=dict)

    def verify(self, tokens, level: int = MEDIAN) -> np.ndarray:
        """Seconds of a forward of all layers over so many tokens (any shape)."""
        return _at(self.full, self.sizes, tokens, level)

    def draft_forward(self, exit_layer: int | None, level: int = MEDIAN) -> float:
        """Seconds to draft one token."""
        if exit_layer is None:
            return self._of_draft("step")[level]
        return exit_layer * self._of_layers("draft_layer")[level] + self._of_layers("draft_rest")[level]

    def cost_ratio(self, exit_layer: int | None) -> float:
        """c of the textbook formula: one draft step ÷ one plain forward of the target."""
        return self.draft_forward(exit_layer) / float(self.verify(1))

    def drafting(self, exit_layer: int | None, drafted, behind_full=0, level: int = MEDIAN) -> np.ndarray:
        """Seconds of the draft phase of iterations that draft so many tokens (any shape). behind_full: 1 where the
        iteration before was accepted in full."""
        drafted = np.asarray(drafted)
        if exit_layer is None:
            once = self._of_draft("first")[level] + np.asarray(behind_full) * self._of_draft("behind_full")[level]
            return drafted * self._of_draft("step")[level] + (drafted > 0) * once
        once = self._of_layers("draft_once")[level] + exit_layer * self._of_layers("draft_layer")[level]
        return drafted * self.draft_forward(exit_layer, level) + once

    def verifying(self, exit_layer: int | None, drafted, level: int = MEDIAN) -> np.ndarray:
        """Seconds of the verification of so many drafted tokens (any shape)."""
        tokens = np.asarray(drafted) + 1
        if exit_layer is None:
            return self.verify(tokens, level)
        layer = _at(self._of_layers("verify_layer"), self.sizes, tokens, level)
        return (self.layers - exit_layer) * layer + _at(self._of_layers("verify_rest"), self.sizes, tokens, level)

    def loop(self, drafted, level: int = MEDIAN) -> np.ndarray:
        """Seconds that an iteration costs beside drafting and verifying."""
        return self.iteration[level] + np.asarray(drafted) * self.token[level]

    def plain_token(self, level: int = MEDIAN) -> float:
        """Seconds a token of plain decoding."""
        return float(self.verify(1, level)) + self.iteration[level]

    def _of_draft(self, name: str) -> Timing:
        value = getattr(self, name)
        if value is None:
            raise UsageError("these costs were measured without a draft model: measure them with one")
        return value

    def _of_layers(self, name: str):
        value = getattr(self, name)
        if value is None:
            raise UsageError(f"the layers of {self.target} were not measured apart: early exit cannot be predicted")
        return value


def _at(timings: Sequence[Timing], sizes: Sequence[int], tokens, level: int) -> np.ndarray:
    """Between measured sizes on the straight line; behind the largest one on with the slope of the last part."""
    values = np.asarray(timings, np.float64)[:, level]
    tokens = np.asarray(tokens, np.float64)
    inside = np.interp(tokens, sizes, values)
    if len(sizes) < 2:
        return inside
    slope = (values[-1] - values[-2]) / (sizes[-1] - sizes[-2])
    return inside + np.maximum(tokens - sizes[-1], 0) * max(slope, 0.0)


def save_costs(path: str | os.PathLike[str], costs: Costs) -> None:
    """Write costs as one JSON object."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(asdict(costs), file, ensure_ascii=False, indent=1, allow_nan=False)


def load_costs(path: str | os.PathLike[str]) -> Costs:
    """Read costs. UsageError if the file is missing or something else."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        known = {f.name for f in fields(Costs)}
        return Costs(**{key: _tuples(value) for key, value in data.items() if key in known})
    except OSError as error:
        raise UsageError(f"{os.fspath(path)}: {error.strerror or error}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{os.fspath(path)}: this is not a file of measured costs ({error})") from None


def _tuples(value):
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


# --- predictions -----------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Prediction:
    """Predicted times of one run, in seconds, prefill apart; speedup: over plain decoding, predicted too."""

    seconds: float
    low: float  # with all parts at their lower quartile
    high: float
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    tokens_per_second: float
    speedup: float


def predict(costs: Costs, simulation: Simulation, exit_layer: int | None = None) -> Prediction:
    """What a simulated run would take. exit_layer: the row's layer for early exit, None for a draft model."""
    drafted = np.array([iteration.drafted for iteration in simulation.iterations])
    accepted = np.array([iteration.accepted for iteration in simulation.iterations])
    full = np.concatenate([[False], (accepted == drafted)[:-1]])
    totals = []
    for level in (MEDIAN, LOW, HIGH):
        if simulation.policy.name == "autoregressive":
            parts = [np.zeros(1), costs.verify(np.ones(len(drafted)), level)]
        else:
            parts = [costs.drafting(exit_layer, drafted, full, level), costs.verifying(exit_layer, drafted, level)]
        totals.append([float(part.sum()) for part in (*parts, costs.loop(drafted, level))])
    seconds, low, high = (sum(total) for total in totals)
    return Prediction(
        seconds, low, high, *totals[MEDIAN],
        tokens_per_second=simulation.tokens / seconds if seconds else 0.0,
        speedup=simulation.tokens * costs.plain_token() / seconds if seconds else 0.0,
    )  # fmt: skip


def iteration_seconds(costs: Costs, simulation: Simulation, exit_layer: int | None = None):
    """For ``as_trace``: (drafting, verifying) seconds of each iteration of a simulation."""
    behind = {0: False}
    behind.update({i.index + 1: i.accepted == i.drafted for i in simulation.iterations})

    def seconds(iteration: SimulatedIteration) -> tuple[float, float]:
        if simulation.policy.name == "autoregressive":
            return 0.0, float(costs.verify(1))
        return (
            float(costs.drafting(exit_layer, iteration.drafted, behind[iteration.index])),
            float(costs.verifying(exit_layer, iteration.drafted)),
        )

    return seconds


def grid_seconds(costs: Costs, grid: Grid, early_exit: bool, level: int = MEDIAN) -> np.ndarray:
    """Predicted seconds of every cell of a grid, (R, T, K)."""
    drafted = np.arange(grid.counts.shape[-1])
    out = np.empty(grid.iterations.shape)
    for index, row in enumerate(grid.rows):
        layer = row if early_exit else None
        each = costs.drafting(layer, drafted, 0, level) + costs.verifying(layer, drafted, level) + costs.loop(drafted, level)
        out[index] = grid.counts[index] @ each
        if not early_exit:
            more = costs.drafting(None, 1, 1, level) - costs.drafting(None, 1, 0, level)
            out[index] += grid.behind_full[index] * float(more)
    return out


@dataclass(frozen=True)
class Best:
    """The fastest cell of a grid. exit_layer is None for a draft model."""

    exit_layer: int | None
    threshold: float
    lookahead: int
    tokens_per_second: float
    speedup: float


def best(costs: Costs, probe: Probe, policy: str = "dynamic", *, lookaheads=None, thresholds=None) -> Best:
    """The best exit layer, threshold and lookahead for a probed output. Of equally fast ones the first, which is the
    shallowest exit, the lowest threshold and the shortest lookahead. Default: every lookahead, 20 thresholds."""
    lookaheads = range(1, probe.max_lookahead + 1) if lookaheads is None else lookaheads
    if thresholds is None:
        thresholds = np.linspace(0, 0.95, 20).tolist() if policy in ("dynamic", "heuristic") else [0.0]
    grid = simulate_grid(probe, policy, lookaheads=lookaheads, thresholds=thresholds)
    early = probe.kind == "early-exit"
    seconds = grid_seconds(costs, grid, early)
    row, threshold, lookahead = np.unravel_index(seconds.argmin(), seconds.shape)
    least = float(seconds.min())
    return Best(
        grid.rows[row] if early else None, grid.thresholds[threshold], grid.lookaheads[lookahead],
        grid.tokens / least, grid.tokens * costs.plain_token() / least,
    )  # fmt: skip


# --- the textbook ----------------------------------------------------------------------------------------

def expected_tokens(alpha: float, lookahead: int) -> float:
    """Tokens an iteration when every draft is accepted with probability alpha, independently of the others:
    (1 - alpha^(k+1)) / (1 - alpha) (Leviathan et al. 2023, equation 1)."""
    return lookahead + 1.0 if alpha >= 1 else (1 - alpha ** (lookahead + 1)) / (1 - alpha)


def textbook_speedup(alpha: float, lookahead: int, cost_ratio: float) -> float:
    """Speed-up where a draft step costs cost_ratio target forwards and verifying costs one, however many tokens it is
    of (Leviathan et al. 2023, theorem 3.8). Beside a measured one it shows what flat verification would have given."""
    return expected_tokens(alpha, lookahead) / (lookahead * cost_ratio + 1)


def textbook_lookahead(alpha: float, cost_ratio: float, most: int = 32) -> int:
    """The lookahead of the highest textbook speed-up, 0 where drafting does not pay."""
    return max(range(most + 1), key=lambda lookahead: textbook_speedup(alpha, lookahead, cost_ratio))
