"""How far the oracle could look ahead: from prompt to prompt, and from task to task."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.figures import checks
from specviz.figures.panels import stacked
from specviz.figures.text import token
from specviz.figures.theme import LIGHT, Look, empty, finish, series

_COLUMNS = ("task", "prompt", "iterations", "mean", "median", "longest")


def oracle_table(lengths: object) -> pd.DataFrame:
    """One row a prompt: task, prompt, iterations of the oracle, mean, median and longest lookahead.

    lengths: a table with the columns task, prompt, lookahead, one row for each iteration of the oracle method (as its
    own log has it, or simulated from a probe).
    """
    table = checks.frame(lengths, "oracle_distribution", ("task", "prompt", "lookahead"))
    if (table["lookahead"] < 0).any():
        raise ValueError("oracle_distribution: a lookahead below 0")
    grouped = table.groupby(["task", "prompt"], sort=False)["lookahead"]
    out = grouped.agg(["count", "mean", "median", "max"]).reset_index()
    return out.set_axis(list(_COLUMNS), axis=1)


def oracle_distribution(lengths: object, look: Look = LIGHT) -> go.Figure:
    """Mean oracle lookahead of every prompt by task, and how often k drafts in a row would be right.

    One learns why one fixed lookahead cannot fit: the best length differs from task to task and, within a task, from
    prompt to prompt. The lower curve says for every k in how many iterations drafting k tokens would not be in vain.
    Input: see ``oracle_table``.
    """
    table = oracle_table(lengths)
    if table.empty:
        return empty(look, name="oracle", columns=_COLUMNS, panels=2)
    raw = checks.frame(lengths, "oracle_distribution", ("task", "prompt", "lookahead"))
    tasks = list(dict.fromkeys(table["task"]))
    fig = stacked(
        [look.word("oracle.by_prompt"), look.word("oracle.at_least")], look, shares=[0.5, 0.5], same_x=False, gap=0.22
    )
    longest = int(raw["lookahead"].max())
    for number, task in enumerate(tasks):
        style = series(number, look)
        part = table[table["task"] == task].sort_values("mean")
        # Dots of a task are fanned out a little, by rank, so that equal means stay countable.
        fan = (np.arange(len(part)) % 5 - 2) * 0.09 if len(part) > 1 else [0.0]
        place = len(tasks) - 1 - number
        name = _task(task, look)
        fig.add_scatter(
            x=part["mean"], y=place + np.asarray(fan), mode="markers", row=1, col=1, showlegend=False,
            marker={"symbol": style["symbol"], "size": 8, "color": style["color"], "opacity": 0.85},
            hovertext=[_hover(row, look) for row in part.to_dict("records")], hoverinfo="text",
        )  # fmt: skip
        middle = float(part["mean"].median())
        fig.add_scatter(
            x=[middle, middle], y=[place - 0.36, place + 0.36], mode="lines", row=1, col=1, hoverinfo="text",
            hovertext=f"{name}: {look.word('column.median')} {middle:.1f}", line={"color": look.colour("ink"), "width": 3},
            name=look.word("oracle.median"), showlegend=number == 0,
        )  # fmt: skip
        steps = np.arange(1, max(longest, 1) + 1)
        own = raw.loc[raw["task"] == task, "lookahead"].to_numpy()
        share = [(own >= k).mean() for k in steps]
        fig.add_scatter(
            x=steps, y=share, mode="lines+markers", row=2, col=1, name=name,
            line={"color": style["color"], "dash": style["dash"], "width": 2},
            marker={"symbol": style["symbol"], "size": 6, "color": style["color"]},
            hovertext=[f"{name}<br>k = {k}: {part_share:.0%}" for k, part_share in zip(steps, share, strict=True)],
            hoverinfo="text",
        )  # fmt: skip
    fig.update_yaxes(
        tickvals=list(range(len(tasks))), ticktext=[_task(task, look) for task in reversed(tasks)],
        range=[-0.6, len(tasks) - 0.4], showgrid=False, row=1, col=1,
    )  # fmt: skip
    fig.update_yaxes(range=[0, 1.04], tickformat=".0%", row=2, col=1)
    fig.update_xaxes(rangemode="tozero", row=1, col=1)
    fig.update_xaxes(title_text=look.word("axis.k"), range=[0.5, min(longest, 24) + 0.5], row=2, col=1)
    return finish(fig, look, name="oracle", table=table, panels=2)


def _task(task: str, look: Look) -> str:
    try:
        return look.word(f"task.{task}")
    except KeyError:
        return token(str(task), 24)


def _hover(row: dict, look: Look) -> str:
    return "<br>".join(
        [
            f"<b>{token(str(row['prompt']), 36)}</b>",
            f"{look.word('column.mean')} {row['mean']:.2f}, {look.word('column.longest')} {row['longest']:.0f}",
            f"{look.word('column.iterations')} {row['iterations']:.0f}",
        ]
    )
