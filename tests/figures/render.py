"""Render every figure to PNG, to be looked at: light and dark, wide and narrow.

    python -m tests.figures.render FOLDER [--trace RUN.jsonl] [--plain RUN.jsonl] [--probe PROBE.npz] [--costs COSTS.json] [--lang ja] [--only NAME]

Without files it draws runs that are made by hand. Needs kaleido and a Chromium.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io

from specviz.analysis.cost import Costs, load_costs, predict
from specviz.analysis.probe import Probe, load_probe
from specviz.analysis.simulate import Policy, simulate
from specviz.figures import (
    calibration,
    exits,
    from_probe,
    iterations,
    kvq,
    oracle,
    policies,
    thresholds,
    timeline,
)
from specviz.figures.theme import Look
from specviz.trace import Trace, read_trace
from tests.figures import runs

WIDTHS = (900, 390)


def figures(trace: Trace, plain: Trace | None, probe: Probe, costs: Costs, look: Look) -> dict[str, go.Figure]:
    """Every figure of the package on one run, its probe and the costs of a machine."""
    layer = trace.header.method.get("exit_layer") if probe.kind == "early-exit" else None
    curve = from_probe.threshold_frame(probe, costs, layer)
    policy_rows = from_probe.policy_frame(probe, layer, {**from_probe.POLICIES, "dynamic": Policy("dynamic", 12, 0.4)})
    base = {name: predict(costs, simulate(probe, policy, layer), layer).tokens_per_second
            for name, policy in from_probe.POLICIES.items() if name in ("constant", "oracle")}
    rng = np.random.default_rng(3)
    lengths = [
        {"task": task, "prompt": f"{task} {number}", "lookahead": int(length)}
        for place, task in enumerate(("open-ended", "summarisation", "code", "japanese"))
        for number in range(20)
        for length in rng.geometric(0.18 + 0.08 * place + 0.14 * rng.random(), 30) - 1
    ]
    seen = calibration.judged([trace])
    if probe.kind == "early-exit":
        rest = [runs.run("constant", e, 6) for e in range(2, 12)] if probe.target == "made-up" else []
        seen = calibration.judged([trace, *rest])
    sweep = _sweep(probe, costs, layer, look) if probe.kind == "early-exit" else {}
    return {
        "strip": iterations.acceptance_strip(trace, look),
        "lookahead": iterations.lookahead(trace, iterations.oracle_lookahead(trace, probe, layer), look),
        "oracle": oracle.oracle_distribution(pd.DataFrame(lengths), look),
        "policies": policies.policy_forwards(policy_rows, look=look),
        "threshold": thresholds.threshold_curve(curve, 0.4, base, look=look),
        **sweep,
        "calibration": calibration.calibration(*seen, threshold=0.45, look=look),
        "confidence": calibration.confidence_curve(trace, look=look),
        "timeline": timeline.timeline(trace, plain, look),
        "kvq": kvq.kvq(trace, look=look),
        "empty": iterations.acceptance_strip(Trace(trace.header), look),
    }


def _sweep(probe: Probe, costs: Costs, layer: int | None, look: Look) -> dict[str, go.Figure]:
    """The figures over exit layers; the points are made up around the prediction."""
    cells = from_probe.heat_map_frame(probe, costs, lookaheads=range(1, 13))
    cells["measured"] = (cells["exit_layer"] + cells["lookahead"]) % 5 == 0
    spot = from_probe.sweet_spot_frame(probe, costs)
    rng = np.random.default_rng(3)
    measured = [
        {**row, "speed": row["speed"] * rng.normal(1, 0.04), "acceptance": min(1.0, row["acceptance"] * rng.normal(1, 0.03))}
        for row in spot.iloc[::2].to_dict("records") for _ in range(2)
    ]  # fmt: skip
    return {
        "sweet_spot": exits.sweet_spot(spot, measured, probe.layers, layer, look),
        "heat_map": exits.heat_map(cells, chosen=(layer or 1, 4), look=look),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--plain", type=Path, help="a run of the target alone")
    parser.add_argument("--probe", type=Path)
    parser.add_argument("--costs", type=Path)
    parser.add_argument("--lang", default="en")
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    trace = read_trace(args.trace) if args.trace else runs.run()
    plain = read_trace(args.plain) if args.plain else None if args.trace else runs.run("autoregressive")
    probe = load_probe(args.probe) if args.probe else runs.probe()
    costs = load_costs(args.costs) if args.costs else runs.costs(probe.layers)
    args.folder.mkdir(parents=True, exist_ok=True)
    drawn, files = [], []
    for dark in (False, True):
        for name, fig in figures(trace, plain, probe, costs, Look(dark, args.lang)).items():
            if args.only and name not in args.only:
                continue
            for width in WIDTHS:
                drawn.append(go.Figure(fig).update_layout(width=width))
                files.append(args.folder / f"{name}-{'dark' if dark else 'light'}-{width}.png")
    # Several at once, because starting the browser takes longer than drawing; not all, because a slow one gives up.
    for at in range(0, len(files), 12):
        batch = drawn[at : at + 12]
        plotly.io.write_images(
            batch, files[at : at + 12], width=[fig.layout.width for fig in batch], height=[fig.layout.height for fig in batch]
        )
    print(f"{len(files)} pictures in {args.folder}")


if __name__ == "__main__":
    main()
