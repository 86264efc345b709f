"""Many simulations at once: every exit layer, threshold and lookahead of a probe, as arrays. Numpy only.

All cells of the grid walk through the output side by side; where the next iteration starts depends only on where this
one started and on the policy's state. ``simulate`` says the same of one cell, with its iterations; a test holds the two
equal. 12 exit layers x 20 thresholds x 16 lookaheads over 256 tokens take about 0.04 s on one core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specviz.analysis.probe import Probe
from specviz.analysis.simulate import Policy, Stops, budgets, check_lookahead


@dataclass(frozen=True, eq=False)
class Grid:
    """Totals of simulated runs. R rows of the probe, T thresholds, K lookaheads; arrays (R, T, K) unless said else."""

    policy: str
    rows: tuple[int, ...]  # (R,) exit layers; (0,) for a draft model
    thresholds: tuple[float, ...]
    lookaheads: tuple[int, ...]
    tokens: int  # of the output, the same in every cell
    iterations: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    behind_full: np.ndarray  # iterations that draft, and whose draft model has one more token to read: behind a full acceptance
    counts: np.ndarray  # (R, T, K, D + 1): iterations that drafted 0..D tokens
    exact: np.ndarray  # bool, see Simulation.exact

    @property
    def acceptance_rate(self) -> np.ndarray:
        """(R, T, K) accepted ÷ drafted; NaN where nothing was drafted."""
        return np.divide(self.accepted, self.drafted, out=np.full(self.drafted.shape, np.nan), where=self.drafted > 0)

    @property
    def mean_acceptance_length(self) -> np.ndarray:
        """(R, T, K) tokens per target forward."""
        return self.tokens / np.maximum(self.iterations, 1)


def simulate_grid(
    probe: Probe,
    policy: str = "dynamic",
    *,
    lookaheads: Sequence[int],
    thresholds: Sequence[float] = (0.0,),
    exit_layers: Sequence[int] | None = None,
) -> Grid:
    """Simulate a policy ("constant", "heuristic", "dynamic", "oracle") for every combination; exit_layers: default all
    that were probed. The oracle ignores lookaheads and thresholds. UsageError as ``simulate``."""
    for lookahead in lookaheads:
        Policy(policy, lookahead)
        check_lookahead(probe, policy, lookahead)
    early = probe.kind == "early-exit"
    rows = [probe.row_of(layer) for layer in exit_layers] if early and exit_layers is not None else range(len(probe.rows))
    rows = list(rows)
    n, shape = probe.length, (len(rows), len(thresholds), len(lookaheads))
    natural, known = np.empty((len(rows), len(thresholds), n), np.int64), np.empty((len(rows), n), np.int64)
    for index, row in enumerate(rows):
        stops = Stops(probe, row, thresholds)
        natural[index], known[index] = np.minimum(stops.eos, stops.low), stops.known
    if policy == "oracle":
        natural[:] = np.iinfo(np.int64).max
    run, budget = probe.run[rows], budgets(probe)

    cells = np.arange(np.prod(shape))
    row, threshold, lookahead_at = (part.ravel() for part in np.indices(shape))
    start, lookahead = np.zeros(len(cells), np.int64), np.asarray(lookaheads, np.int64)[lookahead_at]
    iterations, drafted_sum, accepted_sum, behind_full = (np.zeros(len(cells), np.int64) for _ in range(4))
    counts = np.zeros((len(cells), int(max([*lookaheads, run.max(initial=0)])) + 1), np.int32)
    exact = np.ones(len(cells), bool)
    full = np.zeros(len(cells), bool)
    cells = cells[: len(cells) if n else 0]
    while len(cells):
        most = run[row, start] if policy == "oracle" else lookahead
        drafted = np.minimum(np.minimum(natural[row, threshold, start], most), budget[start])
        accepted = np.minimum(drafted, run[row, start])
        exact[cells] &= drafted <= known[row, start]
        iterations[cells] += 1
        drafted_sum[cells] += drafted
        accepted_sum[cells] += accepted
        behind_full[cells] += full & (drafted > 0)
        if policy == "heuristic" and drafted.max() >= counts.shape[1]:
            counts = np.pad(counts, ((0, 0), (0, int(drafted.max()) + 1 - counts.shape[1])))
        counts[cells, drafted] += 1  # no cell stands twice in `cells`
        full = accepted == drafted
        if policy == "heuristic":
            lookahead = np.where(full, lookahead + 2, np.maximum(lookahead - 1, 1))
        start = start + accepted + 1
        going = start < n
        if not going.all():
            cells, row, threshold = cells[going], row[going], threshold[going]
            start, lookahead, full = start[going], lookahead[going], full[going]
    widest = int(np.flatnonzero(counts.any(axis=0)).max(initial=0)) + 1
    return Grid(
        policy, tuple(probe.rows[row] for row in rows), tuple(float(t) for t in thresholds),
        tuple(int(k) for k in lookaheads), n,
        iterations.reshape(shape), drafted_sum.reshape(shape), accepted_sum.reshape(shape),
        behind_full.reshape(shape), counts[:, :widest].reshape(*shape, widest), exact.reshape(shape),
    )  # fmt: skip
