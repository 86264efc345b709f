"""A probe and measured costs -> the tables that the sweep figures draw. No model runs, so a slider can ask for them.

Every function names the figure that its table is for. exit_layer: one of the probe's, None for a draft model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from specviz.analysis.cost import HIGH, LOW, MEDIAN, Costs, grid_seconds, predict
from specviz.analysis.grid import Grid, simulate_grid
from specviz.analysis.probe import Probe
from specviz.analysis.simulate import Policy, simulate

POLICIES = {
    "constant": Policy("constant", 5), "heuristic": Policy("heuristic", 5), "dynamic": Policy("dynamic", 20, 0.4),
    "oracle": Policy("oracle"),
}  # fmt: skip
THRESHOLDS = tuple(np.linspace(0, 1, 21).round(2).tolist())


def policy_frame(
    probe: Probe, exit_layer: int | None = None, policies: Mapping[str, Policy] = POLICIES, costs: Costs | None = None
) -> pd.DataFrame:
    """For ``policy_forwards``: target and draft forwards of every policy, and with costs the predicted speed."""
    rows = []
    for name, policy in policies.items():
        run = simulate(probe, policy, exit_layer)
        row = {"policy": name, "target_forwards": len(run.iterations), "draft_forwards": run.drafted}
        if costs is not None:
            row["speed"] = predict(costs, run, exit_layer).tokens_per_second
        rows.append(row)
    return pd.DataFrame(rows)


def threshold_frame(
    probe: Probe, costs: Costs, exit_layer: int | None = None, lookahead: int = 20, thresholds: Sequence[float] = THRESHOLDS
) -> pd.DataFrame:
    """For ``threshold_curve``: predicted tokens per second and the share of drafts that was refused, by threshold."""
    grid = simulate_grid(
        probe, "dynamic", lookaheads=[min(lookahead, probe.max_lookahead)], thresholds=thresholds,
        exit_layers=None if exit_layer is None else [exit_layer],
    )  # fmt: skip
    seconds = grid_seconds(costs, grid, probe.kind == "early-exit")[0, :, 0]
    waste = 1 - np.nan_to_num(grid.acceptance_rate[0, :, 0], nan=1.0)
    return pd.DataFrame({"threshold": grid.thresholds, "speed": grid.tokens / seconds, "waste": waste})


def heat_map_frame(
    probe: Probe, costs: Costs, policy: str = "constant", lookaheads: Sequence[int] | None = None, threshold: float = 0.0
) -> pd.DataFrame:
    """For ``heat_map``: predicted speed-up of every exit layer and lookahead."""
    grid, speed = _speeds(probe, costs, policy, lookaheads, threshold)
    layers, lookaheads = np.meshgrid(grid.rows, grid.lookaheads, indexing="ij")
    return pd.DataFrame({"exit_layer": layers.ravel(), "lookahead": lookaheads.ravel(), "speed": speed[MEDIAN].ravel()})


def sweet_spot_frame(
    probe: Probe, costs: Costs, policy: str = "constant", lookaheads: Sequence[int] | None = None, threshold: float = 0.0
) -> pd.DataFrame:
    """For ``sweet_spot``: every exit layer at the lookahead that is best for it, with the spread of the prediction."""
    grid, speed = _speeds(probe, costs, policy, lookaheads, threshold)
    rows = []
    for index, layer in enumerate(grid.rows):
        best = int(speed[MEDIAN][index].argmax())
        acceptance = grid.acceptance_rate[index, 0, best]
        rows.append({
            "exit_layer": layer, "lookahead": grid.lookaheads[best],
            "acceptance": acceptance, "draft_cost": costs.cost_ratio(layer), "speed": speed[MEDIAN][index, best],
            "speed_low": speed[LOW][index, best], "speed_high": speed[HIGH][index, best],
        })  # fmt: skip
    return pd.DataFrame(rows)


def oracle_frame(probes: Mapping[str, Sequence[tuple[str, Probe]]], exit_layer: int | None = None) -> pd.DataFrame:
    """For ``oracle_distribution``: lookaheads of the oracle's iterations. probes: task -> (prompt's name, its probe)."""
    rows = [
        (task, name, step.drafted)
        for task, pairs in probes.items()
        for name, probe in pairs
        for step in simulate(probe, Policy("oracle"), exit_layer).iterations
    ]
    return pd.DataFrame(rows, columns=["task", "prompt", "lookahead"])


def _speeds(
    probe: Probe, costs: Costs, policy: str, lookaheads: Sequence[int] | None, threshold: float
) -> tuple[Grid, dict[int, np.ndarray]]:
    """The grid, and for MEDIAN, LOW and HIGH the speed-up (R, K) over the target alone.

    LOW is the slow end: the method's parts at their upper quartiles against plain decoding at its median, so that the
    spread is that of the method and not of its yardstick.
    """
    if probe.kind != "early-exit":
        raise ValueError("this probe holds a draft model, not exit layers: measure one without a draft model")
    lookaheads = range(1, probe.max_lookahead + 1) if lookaheads is None else lookaheads
    grid = simulate_grid(probe, policy, lookaheads=list(lookaheads), thresholds=[threshold])
    plain = grid.tokens * costs.plain_token()
    return grid, {
        name: plain / grid_seconds(costs, grid, True, level)[:, 0, :]
        for name, level in ((MEDIAN, MEDIAN), (LOW, HIGH), (HIGH, LOW))
    }
