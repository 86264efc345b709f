"""Which exit layer, and how far ahead: the sweet spot of self-speculative decoding."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.figures import checks
from specviz.figures.panels import heading, stacked
from specviz.figures.theme import LIGHT, SCALE, Look, empty, finish

_SPOT = ("exit_layer", "acceptance", "draft_cost", "speed")
_CELLS = ("exit_layer", "lookahead", "speed")


def sweet_spot_table(predicted: object, measured: object | None = None) -> pd.DataFrame:
    """Predicted and measured rows under each other, told apart by the column ``origin``. See ``sweet_spot``."""
    line = checks.frame(predicted, "sweet_spot", _SPOT, shares=("acceptance",))
    checks.unique(line, "sweet_spot", ["exit_layer"])
    if ("speed_low" in line) != ("speed_high" in line):
        raise ValueError("sweet_spot: speed_low and speed_high belong together")
    line.insert(0, "origin", "predicted")
    if measured is None:
        return line.sort_values("exit_layer", ignore_index=True)
    points = checks.frame(measured, "sweet_spot: measured", ("exit_layer", "speed"), shares=("acceptance",))
    points.insert(0, "origin", "measured")
    table = pd.concat([line, points], ignore_index=True) if len(points) else line
    return table.sort_values(["origin", "exit_layer"], ascending=[False, True], ignore_index=True)


def sweet_spot(
    predicted: object, measured: object | None = None, layers: int | None = None, chosen: int | None = None, look: Look = LIGHT
) -> go.Figure:
    """Acceptance, draft cost and speed-up over the exit layer, under each other.

    One learns that the best exit is not the one that is right most often: a later exit is accepted more, but every draft
    costs more; the speed-up is highest where the gain of one more layer no longer pays for it.

    predicted: one row an exit layer, with exit_layer, acceptance (accepted ÷ drafted, 0..1), draft_cost (one draft step ÷
    one forward of the whole target), speed (speed-up over the target alone), optional speed_low and speed_high (spread of
    the prediction). measured: rows of real runs with exit_layer and speed, optional acceptance and draft_cost; one exit
    layer may occur several times (prompts, repetitions). layers: of the target, for the axis. chosen: the exit in use.
    """
    table = sweet_spot_table(predicted, measured)
    line = table[table["origin"] == "predicted"].reset_index(drop=True)
    points = table[table["origin"] == "measured"]
    if line.empty:
        return empty(look, name="sweet_spot", columns=_SPOT, panels=3)
    fig = stacked(
        [look.word("sweet_spot.acceptance"), look.word("sweet_spot.cost"), look.word("unit.speedup")],
        look, shares=[0.28, 0.28, 0.44], gap=0.085,
    )  # fmt: skip
    common = {"x": line["exit_layer"], "hovertext": _spot_hover(line, look), "hoverinfo": "text"}
    if "speed_low" in line:
        fig.add_scatter(
            x=[*line["exit_layer"], *line["exit_layer"][::-1]], y=[*line["speed_high"], *line["speed_low"][::-1]],
            fill="toself", fillcolor=look.tint("speed"), line={"width": 0}, mode="lines", hoverinfo="skip",
            name=look.word("spread"), row=3, col=1,
        )  # fmt: skip
    for row, (column, meaning) in enumerate((("acceptance", "accepted"), ("draft_cost", "draft"), ("speed", "speed")), 1):
        # Small marks on the line say which exit layers were looked at: there is nothing in between.
        fig.add_scatter(
            y=line[column], mode="lines+markers", line=look.line(meaning, dash="solid"), row=row, col=1,
            marker={"size": 4, "color": look.colour(meaning)}, name=look.word("predicted"), showlegend=row == 3, **common,
        )  # fmt: skip
        if len(points) and column in points:
            fig.add_scatter(
                x=points["exit_layer"], y=points[column], mode="markers", marker=look.marker(meaning, 9), row=row, col=1,
                name=look.word("measured"), showlegend=row == 3, hovertext=_spot_hover(points, look), hoverinfo="text",
            )  # fmt: skip
    best = int(line["speed"].idxmax())
    layer, speed = int(line["exit_layer"][best]), float(line["speed"][best])
    fig.add_scatter(
        x=[layer], y=[speed], mode="markers", marker=look.marker("best", 17), hovertext=[common["hovertext"][best]],
        hoverinfo="text", name=look.word("sweet_spot.best", layer=layer, speed=f"{speed:.2f}"), row=3, col=1,
    )  # fmt: skip
    fig.add_hline(y=1, line={"color": look.colour("target"), "dash": "dash", "width": 1.5}, row=3, col=1)
    fig.add_scatter(
        x=[None], y=[None], mode="lines", name=look.word("sweet_spot.alone"), row=3, col=1,
        line={"color": look.colour("target"), "dash": "dash", "width": 1.5},
    )  # fmt: skip
    if chosen is not None:
        for row in (1, 2, 3):
            fig.add_vline(x=chosen, line=look.line("early", 1.5, dash="dot"), row=row, col=1)
        fig.add_scatter(
            x=[None], y=[None], mode="lines", name=look.word("sweet_spot.chosen", layer=chosen), row=3, col=1,
            line=look.line("early", 1.5, dash="dot"),
        )  # fmt: skip
    last = max(layers - 1 if layers else 0, int(table["exit_layer"].max()))
    fig.update_xaxes(range=[0.5, last + 0.5], dtick=1 if last <= 16 else 2 if last <= 32 else 5)
    fig.update_xaxes(title_text=look.word("axis.exit_layer"), row=3, col=1)
    fig.update_yaxes(range=[0, 1.05], tickformat=".0%", nticks=4, row=1, col=1)
    fig.update_yaxes(rangemode="tozero", tickformat=".0%", nticks=4, row=2, col=1)
    fig.update_yaxes(rangemode="tozero", row=3, col=1)
    return finish(fig, look, name="sweet_spot", table=table, panels=3)


def heat_map(cells: object, unit: str = "speedup", chosen: tuple[int, int] | None = None, look: Look = LIGHT) -> go.Figure:
    """Speed over exit layer and lookahead.

    One learns how the two depend on each other: an exit that is often right rewards a long lookahead, a poor one only a
    short one. The star is the best cell, dots are cells that were measured by real runs (the others are predicted).

    cells: a table with exit_layer, lookahead, speed (in `unit`: "speedup" or "tokens_per_second"), each pair once;
    optional measured (bool). Pairs that are absent stay empty. chosen: (exit layer, lookahead) in use.
    """
    table = checks.frame(cells, "heat_map", _CELLS)
    checks.unique(table, "heat_map", ["exit_layer", "lookahead"])
    if table.empty:
        return empty(look, name="heat_map", columns=_CELLS, panels=2)
    table = table.sort_values(["exit_layer", "lookahead"], ignore_index=True)
    grid = table.pivot(index="lookahead", columns="exit_layer", values="speed")
    # Rows and columns that nobody asked for stay as gaps: a missing lookahead is not the same as its neighbour.
    grid = grid.reindex(index=range(int(grid.index.min()), int(grid.index.max()) + 1))
    grid = grid.reindex(columns=range(int(grid.columns.min()), int(grid.columns.max()) + 1))
    values = grid.to_numpy(float)
    fig = go.Figure()
    fig.add_heatmap(
        x=list(grid.columns), y=list(grid.index), z=values, colorscale=SCALE, xgap=1, ygap=1, hoverongaps=False,
        hovertemplate=f"{look.word('axis.exit_layer')} %{{x}}<br>{look.word('axis.lookahead')} %{{y}}<br>"
        f"<b>%{{z:.2f}}</b> {look.word(f'unit.{unit}')}<extra></extra>",
        colorbar={"thickness": 12, "len": 1.04, "x": 1.01, "outlinewidth": 0, "ticks": "outside", "ticklen": 3, "nticks": 7},
    )  # fmt: skip
    if "measured" in table:
        seen = table[table["measured"].astype(bool)]
        fig.add_scatter(
            x=seen["exit_layer"], y=seen["lookahead"], mode="markers", hoverinfo="skip", name=look.word("measured"),
            marker={"symbol": "circle", "size": 5, "color": "#ffffff", "line": {"width": 1, "color": "#000000"}},
        )  # fmt: skip
    best = table.loc[table["speed"].idxmax()]
    marks = [("star", look.word("heat_map.best", layer=int(best["exit_layer"]), lookahead=int(best["lookahead"]),
                                speed=f"{best['speed']:.2f}"), (best["exit_layer"], best["lookahead"]))]  # fmt: skip
    if chosen is not None:
        marks.append(("square", look.word("heat_map.chosen", layer=chosen[0], lookahead=chosen[1]), chosen))
    for symbol, name, (x, y) in marks:
        # White with a black border: seen on every colour of the scale.
        fig.add_scatter(
            x=[x], y=[y], mode="markers", hoverinfo="skip", name=name,
            marker={"symbol": symbol, "size": 15 if symbol == "star" else 11, "color": "#ffffff", "line": {"width": 1.5, "color": "#000000"}},
        )  # fmt: skip
    fig.update_xaxes(
        title_text=look.word("axis.exit_layer"), dtick=_every(values.shape[1]), showgrid=False,
        range=[grid.columns.min() - 0.5, grid.columns.max() + 0.5],
    )
    fig.update_yaxes(dtick=_every(values.shape[0]), showgrid=False, range=[grid.index.min() - 0.5, grid.index.max() + 0.5])
    heading(fig, look.word("axis.lookahead"), look)
    return finish(fig, look, name="heat_map", table=table, panels=2)


def _every(count: int) -> int:
    return 1 if count <= 16 else 2 if count <= 32 else 5


def _spot_hover(rows: pd.DataFrame, look: Look) -> list[str]:
    out = []
    for row in rows.to_dict("records"):
        lines = [f"<b>{look.word('axis.exit_layer')} {row['exit_layer']:.0f}</b> ({look.word(row['origin'])})"]
        for column, form in (("acceptance", ".1%"), ("draft_cost", ".1%"), ("speed", ".2f")):
            value = row.get(column, np.nan)
            if value is not None and not pd.isna(value):
                lines.append(f"{look.word('column.' + column)} {value:{form}}")
        out.append("<br>".join(lines))
    return out
