"""Confidence against acceptance: may a policy believe what the drafter says of itself?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.figures import checks
from specviz.figures.panels import heading, stacked
from specviz.figures.text import token, visible
from specviz.figures.theme import LIGHT, Look, empty, finish
from specviz.trace import Trace

_BINS = ("from", "to", "tokens", "accepted", "confidence", "rate", "low", "high")
_TOKENS = ("number", "iteration", "text", "confidence", "outcome")


def judged(traces: Iterable[Trace]) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and fate of every drafted token that the target judged: (n,) floats, (n,) bools.

    Tokens behind a refused one are left out: the target saw them after a wrong token, so their refusal says nothing.
    """
    confidence, accepted = [], []
    for trace in traces:
        for step in trace.iterations:
            # An iteration without the target's own token ended in an accepted end of sequence: all before it counts.
            for index, piece in enumerate(step.draft[: step.accepted + 1]):
                confidence.append(piece.confidence)
                accepted.append(index < step.accepted)
    return np.asarray(confidence, float), np.asarray(accepted, bool)


def calibration_table(confidence: Sequence[float], accepted: Sequence[bool], bins: int = 10) -> pd.DataFrame:
    """One row a bin of confidence: its borders, tokens, accepted, mean confidence, rate and its 95 % interval (Wilson).

    Bins without tokens are left out.
    """
    checks.same_length("calibration", confidence=confidence, accepted=accepted)
    values = checks.share(confidence, "calibration: confidence")
    if np.isnan(values).any():
        raise ValueError("calibration: a confidence is missing (NaN)")
    if bins < 2:
        raise ValueError(f"calibration: bins={bins}, 2 or more are needed")
    right = np.asarray(accepted, bool)
    place = np.minimum((values * bins).astype(int), bins - 1)
    rows = []
    for index in range(bins):
        inside = place == index
        count, hits = int(inside.sum()), int(right[inside].sum())
        if count:
            low, high = _wilson(hits, count)
            rows.append((index / bins, (index + 1) / bins, count, hits, float(values[inside].mean()), hits / count, low, high))
    return pd.DataFrame(rows, columns=list(_BINS))


def calibration(
    confidence: Sequence[float],
    accepted: Sequence[bool],
    threshold: float | None = None,
    bins: int = 10,
    look: Look = LIGHT,
) -> go.Figure:
    """How often tokens of a given confidence are accepted, with the counts behind every point.

    One learns whether a confidence threshold can work: points on the diagonal are honest, a flat line means that
    confidence says nothing, points above it that the drafter is too modest. Thin bars below warn of points that rest on
    few tokens. Arrays as ``judged`` gives them.
    """
    table = calibration_table(confidence, accepted, bins)
    if table.empty:
        return empty(look, name="calibration", columns=_BINS, panels=2)
    fig = stacked(
        [look.word("calibration.rate"), look.word("calibration.counts")], look, shares=[0.68, 0.32], gap=0.11
    )
    hover = [
        f"<b>{row['from']:.1f}–{row['to']:.1f}</b><br>{look.word('accepted')} {row['accepted']} / {row['tokens']} = {row['rate']:.0%}"
        f"<br>95 %: {row['low']:.0%}–{row['high']:.0%}"
        for row in table.to_dict("records")
    ]
    fig.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name=look.word("calibration.honest"), hoverinfo="skip",
        line={"color": look.colour("muted"), "dash": "dot", "width": 1.5}, row=1, col=1,
    )  # fmt: skip
    # An empty bin breaks the line: between its neighbours nothing is known.
    every = table.set_index((table["from"] * bins).round().astype(int)).reindex(range(bins))
    fig.add_scatter(
        x=every["confidence"], y=every["rate"], mode="lines+markers", name=look.word("accepted_share"),
        line=look.line("accepted"), marker=look.marker("accepted", 8), connectgaps=False,
        hovertext=pd.Series(hover, index=table["from"]).reindex(every["from"]).fillna(""), hoverinfo="text",
        error_y={
            "type": "data", "symmetric": False, "array": every["high"] - every["rate"],
            "arrayminus": every["rate"] - every["low"], "thickness": 1.2, "width": 3, "color": look.colour("accepted"),
        },
        row=1, col=1,
    )  # fmt: skip
    middle, width = (table["from"] + table["to"]) / 2, 0.92 / bins
    for outcome, counts in (("accepted", table["accepted"]), ("refused", table["tokens"] - table["accepted"])):
        fig.add_bar(
            x=middle, y=counts, width=width, marker=look.bar(outcome), name=look.word(outcome), hovertext=hover,
            hoverinfo="text", row=2, col=1,
        )  # fmt: skip
    if threshold is not None:
        _threshold_line(fig, threshold, look, vertical=True)
    fig.update_layout(barmode="stack", legend_traceorder="normal")
    fig.update_yaxes(range=[-0.02, 1.04], tickformat=".0%", row=1, col=1)
    fig.update_yaxes(rangemode="tozero", nticks=4, row=2, col=1)
    fig.update_xaxes(range=[-0.01, 1.02])
    fig.update_xaxes(title_text=look.word("axis.confidence"), row=2, col=1)
    return finish(fig, look, name="calibration", table=table, panels=2)


def confidence_table(trace: Trace) -> pd.DataFrame:
    """One row a drafted token in the order of drafting: number, iteration, text, confidence, outcome.

    outcome: "accepted", "refused", or "behind" a refused one (drafted on a wrong text, so its confidence says nothing).
    """
    rows, number = [], 0
    for step in trace.iterations:
        for index, piece in enumerate(step.draft):
            outcome = "accepted" if index < step.accepted else "refused" if index == step.accepted else "behind"
            rows.append((number, step.index + 1, visible(piece.text), piece.confidence, outcome))
            number += 1
    return pd.DataFrame(rows, columns=list(_TOKENS))


def confidence_curve(trace: Trace, threshold: float | None = None, look: Look = LIGHT) -> go.Figure:
    """Confidence of every drafted token in the order of drafting, with the threshold.

    One learns whether the threshold divides well: accepted tokens should lie above the line, the first token below it
    ends each draft. threshold: by default the run's own, if it had one.
    """
    table = confidence_table(trace)
    if table.empty:
        return empty(look, name="confidence", columns=_TOKENS)
    if threshold is None:
        threshold = trace.header.method.get("threshold")
    fig = go.Figure()
    fig.add_scatter(
        x=table["number"], y=table["confidence"], mode="lines", hoverinfo="skip", showlegend=False,
        line={"color": look.colour("grid"), "width": 1},
    )  # fmt: skip
    size = 8 if len(table) < 150 else 6
    marks = {
        "behind": look.marker("refused", size - 2, symbol="x-thin-open", opacity=0.55, line={"width": 1}),
        "accepted": look.marker("accepted", size),
        "refused": look.marker("refused", size),
    }
    names = {"behind": look.word("confidence.behind"), "accepted": look.word("accepted"), "refused": look.word("refused")}
    for outcome, mark in marks.items():
        part = table[table["outcome"] == outcome]
        if len(part):
            fig.add_scatter(
                x=part["number"], y=part["confidence"], mode="markers", name=names[outcome], marker=mark, customdata=part["iteration"] - 1,
                hovertext=[
                    f"<b>{token(row['text'])}</b><br>{names[outcome]}"
                    f"<br>{look.word('column.confidence')} {row['confidence']:.3f}"
                    f"<br>{look.word('column.iteration')} {row['iteration']}"
                    for row in part.to_dict("records")
                ],
                hoverinfo="text",
            )  # fmt: skip
    if threshold:
        _threshold_line(fig, float(threshold), look, vertical=False, most=len(table) - 1)
    fig.update_yaxes(range=[-0.03, 1.05])
    fig.update_xaxes(title_text=look.word("axis.drafted_token"), rangemode="tozero")
    heading(fig, look.word("axis.confidence"), look)
    return finish(fig, look, name="confidence", table=table)


def _threshold_line(fig: go.Figure, threshold: float, look: Look, *, vertical: bool, most: float = 1) -> None:
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold={threshold}: choose 0..1, it is a probability")
    span, level = [0, max(most, 1)], [threshold, threshold]
    fig.add_scatter(
        x=level if vertical else span, y=[0, 1] if vertical else level, mode="lines", hoverinfo="skip",
        line=look.line("threshold"), name=f"{look.word('threshold')} {threshold:g}",
        **({"row": 1, "col": 1} if vertical else {}),
    )  # fmt: skip


def _wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share; unlike the plain one it stays within 0..1 and is wide where counts are small."""
    share = hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share))
