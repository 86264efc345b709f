"""Pictures of one run, iteration by iteration: what each target forward brought, and what lookahead could have been."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.metrics import measure
from specviz.figures import checks
from specviz.figures.panels import heading
from specviz.figures.text import token, visible
from specviz.figures.theme import LIGHT, Look, empty, finish
from specviz.trace import Trace

if TYPE_CHECKING:
    from specviz.analysis.probe import Probe

_STRIP = ("iteration", "place", "position", "outcome", "text", "confidence", "target_probability")
_LOOKAHEAD = ("iteration", "position", "drafted", "accepted", "oracle", "stop")


def strip_table(trace: Trace) -> pd.DataFrame:
    """One row a token, in the order of the strip: accepted ones, the target's own, refused ones.

    iteration: counted from 1, as people count; in the log they have indices from 0, and so has a mark's customdata.
    place: height in the strip, from 1. position: in the whole sequence; a refused token has the one it was drafted for.
    """
    rows = []
    for step in trace.iterations:
        for index, piece in enumerate(step.draft):
            kept = index < step.accepted
            # The target's own token takes the place right above the accepted ones; refused ones move up by one.
            place = index + 1 if kept or step.ending is None else index + 2
            outcome = "accepted" if kept else "refused"
            rows.append(
                (step.index + 1, place, step.start + index, outcome, visible(piece.text), piece.confidence, piece.target_probability)
            )
        if step.ending is not None:
            own = step.ending
            rows.append(
                (step.index + 1, step.accepted + 1, step.start + step.accepted, own.kind, visible(own.text), None, own.probability)
            )
    return pd.DataFrame(rows, columns=list(_STRIP)).sort_values(["iteration", "place"], ignore_index=True)


def acceptance_strip(trace: Trace, look: Look = LIGHT) -> go.Figure:
    """Every token of a run as a brick, one column an iteration.

    One learns where speculation pays: the solid bricks and the target's own brick above them are what one target
    forward brought; what stands above that was drafted for nothing. Easy text gives high solid columns.
    """
    if not trace.iterations:
        return empty(look, name="strip", columns=_STRIP)
    table = strip_table(trace)
    fig = go.Figure()
    for outcome in ("accepted", "correction", "bonus", "refused"):
        part = table[table["outcome"] == outcome]
        if part.empty:
            continue
        fig.add_bar(
            x=part["iteration"], y=[1] * len(part), base=part["place"] - 1, width=0.86, name=look.word(outcome),
            marker=_brick(outcome, len(trace.iterations), look), customdata=part["iteration"] - 1,
            hovertext=[_token_hover(row, look) for row in part.to_dict("records")], hoverinfo="text",
        )  # fmt: skip
    mean = measure(trace).mean_acceptance_length
    fig.add_scatter(
        x=[0.5, len(trace.iterations) + 0.5], y=[mean, mean], mode="lines", hoverinfo="skip",
        line=look.line("speed", dash="dash"), name=look.word("strip.mean", mean=f"{mean:.2f}"),
    )  # fmt: skip
    fig.update_layout(barmode="overlay", xaxis_title=look.word("axis.iteration"))
    _iteration_axis(fig, len(trace.iterations))
    fig.update_yaxes(range=[0, max(table["place"].max(), 3) + 0.3], dtick=_step(table["place"].max()))
    heading(fig, look.word("axis.tokens"), look)
    return finish(fig, look, name="strip", table=table)


def oracle_lookahead(trace: Trace, probe: Probe, exit_layer: int | None = None) -> list[int]:
    """Oracle lookahead at the start of each iteration of a trace, from a probe of the same output: one number each."""
    run = probe.run[probe.row_of(exit_layer)]
    out = []
    for step in trace.iterations:
        place = step.start - probe.offset
        if not 0 <= place < len(run):
            raise ValueError(f"iteration {step.index} starts at {step.start}, the probe holds {probe.offset} and {probe.length} more")
        out.append(int(run[place]))
    return out


def lookahead_table(trace: Trace, oracle: Sequence[int] | None = None) -> pd.DataFrame:
    """One row an iteration: drafted, accepted, oracle lookahead (empty where it is not known), why drafting stopped."""
    if oracle is not None:
        checks.same_length("lookahead", iterations=trace.iterations, oracle=oracle)
        for step, length in zip(trace.iterations, oracle, strict=True):
            if length < 0:
                raise ValueError(f"lookahead: oracle {length} in iteration {step.index}, 0 or more is needed")
    rows = [
        (step.index + 1, step.start, step.drafted, step.accepted, None if oracle is None else int(oracle[number]), step.stop)
        for number, step in enumerate(trace.iterations)
    ]
    return pd.DataFrame(rows, columns=list(_LOOKAHEAD))


def lookahead(trace: Trace, oracle: Sequence[int] | None = None, look: Look = LIGHT) -> go.Figure:
    """Drafted, accepted and oracle lookahead, three marks an iteration.

    One learns how far a policy is from the best there is: a wide bar above the narrow one was drafted for nothing, a
    diamond above the wide bar was a chance that was missed. The oracle of a run by early exit or a draft model comes
    from a probe (``oracle_lookahead``).
    """
    if not trace.iterations:
        return empty(look, name="lookahead", columns=_LOOKAHEAD)
    table = lookahead_table(trace, oracle)
    hover = [_iteration_hover(row, look) for row in table.to_dict("records")]
    common = {"x": table["iteration"], "customdata": table["iteration"] - 1, "hovertext": hover, "hoverinfo": "text"}
    fig = go.Figure()
    fig.add_bar(y=table["drafted"], width=0.86, name=look.word("drafted"), marker=look.bar("draft"), **common)
    fig.add_bar(y=table["accepted"], width=0.44, name=look.word("accepted"), marker=look.bar("accepted"), **common)
    if oracle is not None:
        fig.add_scatter(
            y=table["oracle"], mode="markers", cliponaxis=False, name=look.word("oracle"),
            marker=look.marker("oracle", size=_size(len(table))), **common,
        )  # fmt: skip
    fig.update_layout(barmode="overlay", xaxis_title=look.word("axis.iteration"))
    _iteration_axis(fig, len(table))
    top = max(table["drafted"].max(), max(oracle, default=0) if oracle is not None else 0, 3)
    fig.update_yaxes(range=[0, top * 1.06 + 0.3], dtick=_step(top))
    heading(fig, look.word("axis.tokens"), look)
    return finish(fig, look, name="lookahead", table=table)


def _token_hover(row: dict, look: Look) -> str:
    lines = [f"<b>{token(row['text'])}</b>", look.word(row["outcome"])]
    if row["confidence"] is not None and not pd.isna(row["confidence"]):
        lines.append(f"{look.word('column.confidence')} {row['confidence']:.2f}")
    if row["target_probability"] is not None and not pd.isna(row["target_probability"]):
        lines.append(f"{look.word('column.target_probability')} {row['target_probability']:.2f}")
    lines.append(f"{look.word('column.iteration')} {row['iteration']}, {look.word('column.position')} {row['position']}")
    return "<br>".join(lines)


def _brick(outcome: str, columns: int, look: Look) -> dict:
    marker = look.bar(outcome)
    if outcome == "accepted" and columns <= 48:  # solid bricks need joints; thinner columns would be all joint
        marker["line"] = {"width": 1, "color": look.colour("surface")}
    return marker


def _iteration_hover(row: dict, look: Look) -> str:
    lines = [f"<b>{look.word('column.iteration')} {row['iteration']}</b>"]
    for name in ("drafted", "accepted", "oracle"):
        if not pd.isna(row[name]):
            lines.append(f"{look.word(name)} {int(row[name])}")
    lines.append(f"{look.word('column.stop')} {look.word('stop.' + row['stop'])}")
    return "<br>".join(lines)


def _iteration_axis(fig: go.Figure, count: int) -> None:
    fig.update_xaxes(range=[0.4, max(count, 4) + 0.6], dtick=_step(count, 8), tick0=_step(count, 8))


def _step(most: float, ticks: int = 6) -> int:
    """A tick step of 1, 2, 5, 10 … that gives about this many ticks: counts have no halves."""
    size = 1
    while True:
        for factor in (1, 2, 5):
            if most / (size * factor) <= ticks:
                return size * factor
        size *= 10


def _size(count: int) -> float:
    """Marker size that still leaves neighbours apart on a narrow screen."""
    return 11 if count <= 24 else 9 if count <= 48 else 7
