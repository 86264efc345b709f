"""What happened during a training: the log of ``python -m specviz train`` drawn.

A log is the rows of ``training_log.jsonl`` (``read_log`` reads it): one row of kind ``run`` with the schedules, then rows of
kind ``evaluation`` with tokens, held_out_loss (nats a token) and agreement (for every exit, the share of held-out positions
where it picks the full model's token).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from specviz.figures import checks
from specviz.figures.panels import stacked
from specviz.figures.theme import LIGHT, Look, empty, finish, mix, series

_CURVE = ("run", "tokens", "held_out_loss", "exit_layer", "agreement")
_SCHEDULE = ("layer", "dropout_at_half", "dropout_at_end", "exit_weight", "published_weight")


def read_log(path: Path) -> list[dict]:
    """The rows of a training log. ValueError names the line that cannot be read."""
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            raise ValueError(f"{path}, line {number}: not JSON") from None
    return rows


def training_table(logs: Mapping[str, Sequence[dict]]) -> pd.DataFrame:
    """One row a run, evaluation and exit. Exits count layers: exit_layer E is what the first E layers say."""
    rows = []
    for name, log in logs.items():
        for row in log:
            if row.get("kind") != "evaluation":
                continue
            shares = checks.share(row["agreement"], f"training: {name}, agreement")
            rows += [(name, row["tokens"], row["held_out_loss"], index, share) for index, share in enumerate(shares, 1)]
    return pd.DataFrame(rows, columns=list(_CURVE))


def training_curve(logs: Mapping[str, Sequence[dict]], exits_of: str | None = None, look: Look = LIGHT) -> go.Figure:
    """Held-out loss of one or several runs over the tokens seen, and below it how often each exit of one of them agrees
    with its full model.

    One learns what the recipe costs (the distance of two loss curves) and what it buys (early layers that say what the
    last one says). exits_of: the run whose exits are drawn, by default the first. The start of a training, where every exit
    agrees because nothing is known yet, is left out of the lower panel (while the loss is within 15 % of its first value).
    """
    table = training_table(logs)
    if table.empty:
        return empty(look, name="training_curve", columns=_CURVE, panels=3)
    exits_of = exits_of or next(iter(logs))
    fig = stacked(
        [look.word("training_curve.loss"), look.word("training_curve.agreement", run=exits_of)],
        look, shares=[0.42, 0.58], gap=0.1,
    )  # fmt: skip
    for number, (name, part) in enumerate(table.groupby("run", sort=False)):
        points = part.drop_duplicates("tokens")
        style = series(number, look)
        fig.add_scatter(
            x=points["tokens"], y=points["held_out_loss"], mode="lines+markers", name=name, row=1, col=1,
            line={"color": style["color"], "dash": style["dash"], "width": 2},
            marker={"color": style["color"], "symbol": style["symbol"], "size": 5},
            hovertemplate=f"{name}<br>%{{x:.3s}} · %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    mine = table[table["run"] == exits_of]
    layers = int(mine["exit_layer"].max())
    known = mine[mine["held_out_loss"] < 0.85 * mine["held_out_loss"].max()]
    labelled = _labelled(known, layers)
    for layer, part in known[known["exit_layer"] < layers].groupby("exit_layer"):
        colour = mix(look.colour("early"), look.colour("late"), (layer - 1) / max(layers - 2, 1))
        fig.add_scatter(
            x=part["tokens"], y=part["agreement"], mode="lines", showlegend=False, row=2, col=1,
            line={"color": colour, "width": 2.5 if layer == round(layers / 3) else 1.5},
            hovertemplate=look.word("training_curve.exit", layer=layer) + "<br>%{x:.3s} · %{y:.0%}<extra></extra>",
        )  # fmt: skip
        if layer in labelled:
            fig.add_annotation(
                x=part["tokens"].iloc[-1], y=part["agreement"].iloc[-1], text=str(layer), showarrow=False,
                xanchor="left", xshift=4, font={"size": 11, "color": colour}, xref="x2", yref="y2",
            )  # fmt: skip
    fig.update_yaxes(range=[0, 1.02], tickformat=".0%", row=2, col=1)
    fig.update_xaxes(rangemode="tozero", tickformat="~s")
    fig.update_xaxes(title_text=look.word("axis.training_tokens"), row=2, col=1)
    last = mine[mine["tokens"] == mine["tokens"].max()]
    third = last[last["exit_layer"] == max(1, round(layers / 3))]["agreement"].iloc[0]
    values = {"layer": max(1, round(layers / 3)), "share": f"{third:.0%}"}
    return finish(fig, look, name="training_curve", table=table, panels=3, values=values)


def _labelled(known: pd.DataFrame, layers: int) -> set[int]:
    """The exits whose number fits beside the end of its line without lying over another."""
    if known.empty:
        return set()
    last = known[(known["tokens"] == known["tokens"].max()) & (known["exit_layer"] < layers)]
    chosen: list[tuple[float, int]] = []
    for layer, share in sorted(zip(last["exit_layer"], last["agreement"], strict=True)):
        if all(abs(share - other) >= 0.045 for other, _ in chosen):
            chosen.append((share, int(layer)))
    return {layer for _, layer in chosen}


def schedule_table(log: Sequence[dict]) -> pd.DataFrame:
    """One row a layer, from the last ``run`` row of a log: dropout rates, exit weights (all exits in use), published ones."""
    header = next((row for row in reversed(log) if row.get("kind") == "run"), None)
    if header is None:
        return pd.DataFrame(columns=list(_SCHEDULE))
    rows = []
    for layer in range(header["layers"]):
        rates = header["dropout"][layer]
        weight, published = (header[key].get(str(layer), 0.0) for key in ("exit_weights", "published_exit_weights"))
        rows.append((layer + 1, rates[len(rates) // 2], rates[-1], weight, published))
    return pd.DataFrame(rows, columns=list(_SCHEDULE))


def training_schedules(log: Sequence[dict], look: Look = LIGHT) -> go.Figure:
    """How often each layer is skipped, and how much the loss of each exit counts.

    One learns the two halves of the recipe: deep layers are skipped more and more, so that the model does not rely on them;
    early exits are trained, so that what stands there can already be read. Weights are those of all exits in use at once;
    a rotational curriculum takes some of them at each step.
    """
    table = schedule_table(log)
    if table.empty:
        return empty(look, name="training_schedules", columns=_SCHEDULE, panels=2)
    fig = stacked([look.word("training_schedules.dropout"), look.word("training_schedules.weights")], look, gap=0.16)
    for column, dash in (("dropout_at_half", "dot"), ("dropout_at_end", "solid")):
        fig.add_scatter(
            x=table["layer"], y=table[column], mode="lines+markers", name=look.word(f"training_schedules.{column}"),
            line=look.line("late", dash=dash), marker=look.marker("late", 6), row=1, col=1,
            hovertemplate="%{x} · %{y:.1%}<extra></extra>",
        )  # fmt: skip
    for column, meaning in (("exit_weight", "early"), ("published_weight", "other")):
        fig.add_bar(
            x=table["layer"], y=table[column], name=look.word(f"training_schedules.{column}"), marker=look.bar(meaning),
            row=2, col=1, hovertemplate="%{x} · %{y:.1%}<extra></extra>",
        )  # fmt: skip
    fig.update_yaxes(rangemode="tozero", tickformat=".0%", nticks=5)
    fig.update_xaxes(dtick=1 if len(table) <= 16 else 5)
    fig.update_xaxes(title_text=look.word("axis.layer"), row=2, col=1)
    return finish(fig, look, name="training_schedules", table=table, panels=2)
