"""Render every figure to PNG, to be looked at: light and dark, wide and narrow.

    python -m tests.figures.render FOLDER [--trace RUN.jsonl] [--plain RUN.jsonl] [--probe PROBE.npz] [--lang ja] [--only NAME]

Without files it draws runs that are made by hand. Needs kaleido and a Chromium.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io

from specviz.analysis.probe import Probe, load_probe
from specviz.analysis.simulate import Policy, simulate
from specviz.figures import calibration, exits, iterations, kvq, oracle, policies, thresholds, timeline
from specviz.figures.theme import Look
from specviz.trace import Trace, read_trace
from tests.figures import runs

WIDTHS = (900, 390)


def seconds(probe: Probe, simulation, layer: int | None) -> float:
    """A plain cost: a target forward is 1, a layer its share; enough to give the curves their real shape."""
    share = (layer / probe.layers) if layer else 0.15
    # With early exit the last drafted token runs through the early layers as well, so a verification costs a whole forward.
    return len(simulation.iterations) * 1.02 + simulation.drafted * (share + 0.01)


def figures(trace: Trace, plain: Trace | None, probe: Probe, look: Look) -> dict[str, go.Figure]:
    """Every figure of the package on one run and its probe."""
    layer = trace.header.method.get("exit_layer") if probe.kind == "early-exit" else None
    base = probe.length * 1.0
    curve = []
    for threshold in np.linspace(0, 1, 21):
        run = simulate(probe, Policy("dynamic", 20, float(threshold)), layer)
        waste = 1 - run.accepted / run.drafted if run.drafted else 0.0
        curve.append({"threshold": threshold, "speed": 40 * base / seconds(probe, run, layer), "waste": waste})
    rows = []
    for name, policy in (
        ("constant", Policy("constant", 5)), ("heuristic", Policy("heuristic", 5)), ("dynamic", Policy("dynamic", 20, 0.4)),
        ("oracle", Policy("oracle")),
    ):  # fmt: skip
        run = simulate(probe, policy, layer)
        rows.append({"policy": name, "target_forwards": len(run.iterations), "draft_forwards": run.drafted})
    cells, spot = [], []
    for row in probe.rows:
        e = row or None
        for k in range(1, 13):
            run = simulate(probe, Policy("constant", k), e)
            cells.append({"exit_layer": row, "lookahead": k, "speed": base / seconds(probe, run, e), "measured": (row + k) % 5 == 0})
        best = max(cell["speed"] for cell in cells if cell["exit_layer"] == row)
        four = simulate(probe, Policy("constant", 4), e)
        spot.append({
            "exit_layer": row, "acceptance": four.accepted / four.drafted, "draft_cost": row / probe.layers + 0.02,
            "speed": best, "speed_low": best * 0.93, "speed_high": best * 1.06,
        })  # fmt: skip
    rng = np.random.default_rng(3)
    measured = [
        {**row, "speed": row["speed"] * rng.normal(1, 0.04), "acceptance": min(1.0, row["acceptance"] * rng.normal(1, 0.03))}
        for row in spot[::2] for _ in range(2)
    ]  # fmt: skip
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
    return {
        "strip": iterations.acceptance_strip(trace, look),
        "lookahead": iterations.lookahead(trace, iterations.oracle_lookahead(trace, probe, layer), look),
        "oracle": oracle.oracle_distribution(pd.DataFrame(lengths), look),
        "policies": policies.policy_forwards(rows, look=look),
        "threshold": thresholds.threshold_curve(curve, 0.4, {"constant": 38.0, "oracle": 88.0}, look=look),
        "sweet_spot": exits.sweet_spot(spot, measured, probe.layers, layer, look),
        "heat_map": exits.heat_map(cells, chosen=(layer or 1, 4), look=look),
        "calibration": calibration.calibration(*seen, threshold=0.45, look=look),
        "confidence": calibration.confidence_curve(trace, look=look),
        "timeline": timeline.timeline(trace, plain, look),
        "kvq": kvq.kvq(trace, look=look),
        "empty": iterations.acceptance_strip(Trace(trace.header), look),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--plain", type=Path, help="a run of the target alone")
    parser.add_argument("--probe", type=Path)
    parser.add_argument("--lang", default="en")
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    trace = read_trace(args.trace) if args.trace else runs.run()
    plain = read_trace(args.plain) if args.plain else None if args.trace else runs.run("autoregressive")
    probe = load_probe(args.probe) if args.probe else runs.probe()
    args.folder.mkdir(parents=True, exist_ok=True)
    drawn, files = [], []
    for dark in (False, True):
        for name, fig in figures(trace, plain, probe, Look(dark, args.lang)).items():
            if args.only and name not in args.only:
                continue
            for width in WIDTHS:
                drawn.append(go.Figure(fig).update_layout(width=width))
                files.append(args.folder / f"{name}-{'dark' if dark else 'light'}-{width}.png")
    # All at once: starting the browser takes longer than drawing.
    plotly.io.write_images(
        drawn, files, width=[fig.layout.width for fig in drawn], height=[fig.layout.height for fig in drawn]
    )
    print(f"{len(files)} pictures in {args.folder}")


if __name__ == "__main__":
    main()
