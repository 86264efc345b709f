"""Predictions as the tables that figures draw: over exit layers, over exit layer and lookahead, over thresholds.

Each takes probes of one or several prompts of the same models: counts and seconds are summed over them, rates and
speeds are made of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specviz.analysis.cost import HIGH, LOW, MEDIAN, Costs, grid_seconds
from specviz.analysis.grid import simulate_grid
from specviz.analysis.probe import Probe
from specviz.errors import UsageError


@dataclass(frozen=True, eq=False)
class Predicted:
    """A grid over all probes. Arrays (R, T, K): exit layers (0 for a draft model), thresholds, lookaheads."""

    rows: tuple[int, ...]
    thresholds: tuple[float, ...]
    lookaheads: tuple[int, ...]
    tokens: int
    plain_seconds: float
    iterations: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    seconds: np.ndarray  # (3, R, T, K): median, low, high

    @property
    def speedup(self) -> np.ndarray:
        return self.plain_seconds / self.seconds[MEDIAN]

    @property
    def tokens_per_second(self) -> np.ndarray:
        return self.tokens / self.seconds[MEDIAN]


def predict_grid(
    costs: Costs,
    probes: Sequence[Probe],
    policy: str,
    *,
    lookaheads: Sequence[int],
    thresholds: Sequence[float] = (0.0,),
    exit_layers: Sequence[int] | None = None,
) -> Predicted:
    """Simulate and price every combination, summed over the probes. UsageError if the probes are of different rows."""
    if not probes:
        raise UsageError("nothing to predict from: measure a probe first")
    if len({(probe.kind, probe.rows) for probe in probes}) > 1:
        raise UsageError("these probes are of different exit layers or models: compare like with like")
    early = probes[0].kind == "early-exit"
    grids = [
        simulate_grid(probe, policy, lookaheads=lookaheads, thresholds=thresholds, exit_layers=exit_layers)
        for probe in probes
    ]
    tokens = sum(probe.length for probe in probes)
    return Predicted(
        rows=grids[0].rows, thresholds=grids[0].thresholds, lookaheads=grids[0].lookaheads, tokens=tokens,
        plain_seconds=tokens * costs.plain_token(),
        iterations=sum(grid.iterations for grid in grids),
        drafted=sum(grid.drafted for grid in grids),
        accepted=sum(grid.accepted for grid in grids),
        seconds=np.stack([sum(grid_seconds(costs, grid, early, level) for grid in grids) for level in (MEDIAN, LOW, HIGH)]),
    )  # fmt: skip


def sweet_spot_rows(
    costs: Costs, probes: Sequence[Probe], *, policy: str = "constant", lookahead: int | None = None,
    threshold: float = 0.0,
) -> pd.DataFrame:
    """One row an exit layer: exit_layer, lookahead, acceptance, draft_cost, speed, speed_low, speed_high (speed-up).

    lookahead None: the best one of each exit layer. speed_low and speed_high hold plain decoding at its median.
    """
    lookaheads = range(1, probes[0].max_lookahead + 1) if lookahead is None else [lookahead]
    found = predict_grid(costs, probes, policy, lookaheads=lookaheads, thresholds=[threshold])
    rows = []
    for index, layer in enumerate(found.rows):
        best = int(found.seconds[MEDIAN, index, 0].argmin())
        at = (index, 0, best)
        rows.append({
            "exit_layer": layer, "lookahead": found.lookaheads[best],
            "acceptance": found.accepted[at] / max(int(found.drafted[at]), 1),
            "draft_cost": costs.cost_ratio(layer), "speed": found.speedup[at],
            "speed_low": found.plain_seconds / found.seconds[(HIGH, *at)],
            "speed_high": found.plain_seconds / found.seconds[(LOW, *at)],
        })  # fmt: skip
    return pd.DataFrame(rows)


def heat_map_cells(
    costs: Costs, probes: Sequence[Probe], *, policy: str = "constant", lookaheads: Sequence[int], threshold: float = 0.0
) -> pd.DataFrame:
    """One row a pair: exit_layer, lookahead, speed (speed-up), acceptance, tokens_per_second."""
    found = predict_grid(costs, probes, policy, lookaheads=lookaheads, thresholds=[threshold])
    return pd.DataFrame([
        {
            "exit_layer": layer, "lookahead": lookahead, "speed": found.speedup[r, 0, k],
            "acceptance": found.accepted[r, 0, k] / max(int(found.drafted[r, 0, k]), 1),
            "tokens_per_second": found.tokens_per_second[r, 0, k],
        }
        for r, layer in enumerate(found.rows) for k, lookahead in enumerate(found.lookaheads)
    ])  # fmt: skip


def threshold_rows(
    costs: Costs, probes: Sequence[Probe], *, lookahead: int, thresholds: Sequence[float], policy: str = "dynamic",
    exit_layer: int | None = None,
) -> pd.DataFrame:
    """One row a threshold: threshold, speed (speed-up), tokens_per_second, waste (refused ÷ drafted), acceptance."""
    layers = None if exit_layer is None else [exit_layer]
    if probes and probes[0].kind == "early-exit" and exit_layer is None:
        raise UsageError("a threshold curve is of one exit layer: give exit_layer")
    found = predict_grid(costs, probes, policy, lookaheads=[lookahead], thresholds=thresholds, exit_layers=layers)
    drafted, accepted = np.maximum(found.drafted[0, :, 0], 1), found.accepted[0, :, 0]
    return pd.DataFrame({
        "threshold": found.thresholds, "speed": found.speedup[0, :, 0],
        "tokens_per_second": found.tokens_per_second[0, :, 0],
        "waste": (found.drafted[0, :, 0] - accepted) / drafted, "acceptance": accepted / drafted,
    })  # fmt: skip
