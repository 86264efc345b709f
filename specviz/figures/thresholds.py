"""The threshold of dynamic lookahead: what raising it gives and takes."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from specviz.figures import checks
from specviz.figures.panels import stacked
from specviz.figures.policies import policy_name
from specviz.figures.theme import LIGHT, Look, empty, finish

_COLUMNS = ("threshold", "speed", "waste")


def threshold_curve(
    curve: object,
    now: float | None = None,
    baselines: Mapping[str, float] | None = None,
    unit: str = "tokens_per_second",
    look: Look = LIGHT,
) -> go.Figure:
    """Speed and waste over the confidence threshold.

    One learns that both ends lose: a low threshold drafts much in vain, a high one stops too early and verifies too
    often. The star marks the best threshold, and how flat the top is says how carefully it must be chosen.

    curve: a table with the columns threshold (0..1, each once), speed (in `unit`), waste (refused ÷ drafted, 0..1);
    an optional column measured_speed holds speeds of real runs, drawn as points on the predicted line.
    now: the threshold in use. baselines: speeds of other policies on the same output (name -> speed), as lines.
    unit: "tokens_per_second" or "speedup".
    """
    table = checks.frame(curve, "threshold_curve", _COLUMNS, shares=("threshold", "waste"))
    checks.unique(table, "threshold_curve", ["threshold"])
    if table.empty:
        return empty(look, name="threshold_curve", columns=_COLUMNS, panels=2)
    table = table.sort_values("threshold", ignore_index=True)
    fig = stacked([look.word(f"unit.{unit}"), look.word("threshold_curve.waste")], look, shares=[0.6, 0.4], gap=0.12)
    hover = [
        f"<b>{look.word('threshold')} {row['threshold']:.2f}</b><br>{look.word('speed')} {row['speed']:.2f}"
        f"<br>{look.word('column.waste')} {row['waste']:.0%}"
        for row in table.to_dict("records")
    ]
    common = {"x": table["threshold"], "hovertext": hover, "hoverinfo": "text"}
    predicted = look.word("predicted") if "measured_speed" in table else look.word("speed")
    fig.add_scatter(y=table["speed"], mode="lines", name=predicted, line=look.line("speed", 2.5), row=1, col=1, **common)
    if "measured_speed" in table:
        fig.add_scatter(
            y=table["measured_speed"], mode="markers", name=look.word("measured"), marker=look.marker("speed"),
            row=1, col=1, **common,
        )  # fmt: skip
    best = int(table["speed"].idxmax())
    fig.add_scatter(
        x=[table["threshold"][best]], y=[table["speed"][best]], mode="markers", hovertext=[hover[best]], hoverinfo="text",
        marker={**look.marker("best", 15), "color": look.colour("best")},
        name=look.word("threshold_curve.best", threshold=f"{table['threshold'][best]:.2f}"), row=1, col=1,
    )  # fmt: skip
    fig.add_scatter(
        y=table["waste"], mode="lines", name=look.word("column.waste"), line=look.line("refused", dash="solid"),
        fill="tozeroy", fillcolor=look.tint("refused"), row=2, col=1, **common,
    )  # fmt: skip
    dashes = ("dot", "dashdot", "longdash", "dash")
    for number, (policy, speed) in enumerate((baselines or {}).items()):
        fig.add_scatter(
            x=[0, 1], y=[speed, speed], mode="lines", name=f"{policy_name(policy, look)} {speed:.1f}", hoverinfo="skip",
            line={"color": look.colour("oracle" if policy == "oracle" else "muted"), "width": 1.5,
                  "dash": dashes[number % len(dashes)]},
            row=1, col=1,
        )  # fmt: skip
    if now is not None:
        if not 0 <= now <= 1:
            raise ValueError(f"threshold_curve: now={now}, a threshold lies between 0 and 1")
        for row in (1, 2):
            fig.add_vline(x=now, line=look.line("threshold"), row=row, col=1)
        fig.add_scatter(
            x=[None], y=[None], mode="lines", line=look.line("threshold"), row=1, col=1,
            name=look.word("threshold_curve.now", threshold=f"{now:.2f}"),
        )  # fmt: skip
    fig.update_yaxes(rangemode="tozero", row=1, col=1)
    fig.update_yaxes(range=[0, 1.03], tickformat=".0%", row=2, col=1)
    fig.update_xaxes(range=[-0.01, 1.01])
    fig.update_xaxes(title_text=look.word("axis.threshold"), row=2, col=1)
    return finish(fig, look, name="threshold_curve", table=table, panels=2)
