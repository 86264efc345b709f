"""When was drafted, when was verified, and how fast tokens came out."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.metrics import measure
from specviz.figures.panels import stacked
from specviz.figures.text import token, visible
from specviz.figures.theme import LIGHT, Look, empty, finish
from specviz.trace import Trace

_COLUMNS = ("iteration", "work", "start_ms", "ms", "tokens", "text")


def timeline_table(trace: Trace) -> pd.DataFrame:
    """One row a phase: iteration, work ("draft", "target", "other"), start and duration in milliseconds.

    Time 0 is the end of prefill. tokens: of a draft phase those drafted, of a verification those gained. The log times
    drafting and verifying; what the loop needed besides is known for the whole run only and shown spread evenly.
    """
    each = 1000 * (measure(trace).other_seconds or 0.0) / max(len(trace.iterations), 1)
    rows, now = [], 0.0
    for step in trace.iterations:
        phases = (
            ("draft", 1000 * step.draft_seconds, step.drafted, visible("".join(t.text for t in step.draft), 80)),
            ("target", 1000 * step.verify_seconds, len(step.ids), visible(step.text, 80)),
            ("other", each, 0, ""),
        )
        for work, length, tokens, text in phases:
            if length > 0:
                rows.append((step.index + 1, work, now, length, tokens, text))
                now += length
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def timeline(trace: Trace, baseline: Trace | None = None, look: Look = LIGHT) -> go.Figure:
    """Drafting and verifying on one clock, and the tokens that were out at each moment.

    One learns where the time goes: wide drafting bars mean an expensive drafter or too long a lookahead; each step of
    the lower curve is one verification and its height what that brought. baseline: a run of the target alone on the
    same prompt, drawn as a second curve; steeper is faster.
    """
    table = timeline_table(trace)
    if table.empty:
        return empty(look, name="timeline", columns=_COLUMNS, panels=2)
    fig = stacked([look.word("timeline.lanes"), look.word("timeline.tokens")], look, shares=[0.4, 0.6], gap=0.14)
    total = table["ms"].sum()
    for work in ("draft", "target", "other"):
        part = table[table["work"] == work]
        if part.empty:
            continue
        label = look.word(f"lane.{work}")
        fig.add_bar(
            y=[label] * len(part), x=part["ms"], base=part["start_ms"], orientation="h", width=0.8,
            marker=look.bar(work), customdata=part["iteration"] - 1, row=1, col=1,
            name=f"{label} {part['ms'].sum() / total:.0%}",
            hovertext=[_hover(row, look) for row in part.to_dict("records")], hoverinfo="text",
        )  # fmt: skip
    fig.update_yaxes(
        categoryorder="array", categoryarray=[look.word(f"lane.{work}") for work in ("other", "target", "draft")],
        showgrid=False, row=1, col=1,
    )  # fmt: skip
    _curve(fig, trace, table, look, "accepted", look.word("timeline.run"))
    end = total
    if baseline is not None and baseline.iterations:
        plain = timeline_table(baseline)
        _curve(fig, baseline, plain, look, "target", look.word("timeline.alone"))
        end = max(end, plain["ms"].sum())
    fig.update_layout(barmode="overlay")
    fig.update_xaxes(range=[0, end * 1.01])
    fig.update_xaxes(title_text=look.word("axis.ms"), row=2, col=1)
    fig.update_yaxes(rangemode="tozero", row=2, col=1)
    return finish(fig, look, name="timeline", table=table, panels=2)


def _curve(fig: go.Figure, trace: Trace, table: pd.DataFrame, look: Look, meaning: str, name: str) -> None:
    """Tokens that are out, as steps: they come out when a verification ends."""
    steps = meaning == "accepted"
    out = table[table["work"] == "target"]
    ends = (out["start_ms"] + out["ms"]).tolist()
    gained = out["tokens"].cumsum().tolist()
    fig.add_scatter(
        x=[0, *ends], y=[0, *gained], mode="lines", name=name, row=2, col=1, customdata=[-1, *(out["iteration"] - 1)],
        line={**look.line(meaning), "dash": "solid" if steps else "dash", "shape": "hv" if steps else "linear"},
        hovertext=[f"{name}<br>{count} {look.word('axis.tokens')}, {end:.1f} ms"
                   for count, end in zip([0, *gained], [0, *ends], strict=True)],
        hoverinfo="text",
    )  # fmt: skip


def _hover(row: dict, look: Look) -> str:
    lines = [f"<b>{look.word('column.iteration')} {row['iteration']}</b>, {look.word('lane.' + row['work'])} {row['ms']:.2f} ms"]
    if row["text"]:
        lines.append(f"{row['tokens']} {look.word('axis.tokens')}: {token(row['text'], 60)}")
    return "<br>".join(lines)
