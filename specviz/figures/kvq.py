"""Where each token's layers were computed, reused or thrown away: why early exit needs no second cache (KVQ)."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.panels import heading
from specviz.figures.text import token, visible
from specviz.figures.theme import LIGHT, Look, empty, finish
from specviz.trace import Trace

_COLUMNS = ("iteration", "position", "text", "layers", "computed", "fate")
_MOST = 22  # columns that still take a readable token each at 390 px


def layer_work_table(trace: Trace, first: int = 0, count: int | None = None) -> pd.DataFrame:
    """One row a group of layers at a position of an iteration: position, text, layers, who computed it, its fate.

    Drafting runs layers 0..E-1 over the last token of the text and over every drafted token; verification starts from
    these exit states and runs layers E..L-1 over the same positions: computed "early" or "late", each once. What stands
    at an accepted position is "kept" in the shared cache, what stands at a refused one is "thrown away". A run with a
    draft model, or without a drafter, has E = 0: the target computes all of its layers while verifying.

    first, count: the iterations shown; by default as many as can be read on a narrow screen.
    """
    layers = trace.header.target.get("layers")
    if not isinstance(layers, int) or layers < 1:
        raise ValueError("kvq: the trace's header does not say how many layers the target has")
    exit_layer = trace.header.method.get("exit_layer") or 0
    if not 0 <= exit_layer < layers:
        raise ValueError(f"kvq: exit_layer={exit_layer}, this model has {layers} layers")
    if not 0 <= first <= len(trace.iterations):
        raise ValueError(f"kvq: first={first}, the trace has {len(trace.iterations)} iterations")
    steps = trace.iterations[first:] if count is None else trace.iterations[first : first + count]
    texts = _last_texts(trace)
    rows, columns = [], 0
    for step in steps:
        columns += step.drafted + 1
        if count is None and rows and columns > _MOST:
            break
        pieces = [texts[step.index], *(piece.text for piece in step.draft)]
        for offset, text in enumerate(pieces):
            kept = "kept" if offset <= step.accepted else "thrown"
            where = (step.index + 1, step.start - 1 + offset, visible(text))
            if exit_layer:
                rows.append((*where, f"0..{exit_layer - 1}", "early", kept))
            rows.append((*where, f"{exit_layer}..{layers - 1}", "late", kept))
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def kvq(trace: Trace, first: int = 0, count: int | None = None, look: Look = LIGHT) -> go.Figure:
    """One column for each position that an iteration read, from the first layer up to the last.

    One learns what the shared cache saves: early layers are computed while drafting and never again, since verification
    goes on from there; only the columns behind a refused token are thrown away. Input: see ``layer_work_table``.
    """
    table = layer_work_table(trace, first, count)
    if table.empty:
        return empty(look, name="kvq", columns=_COLUMNS, panels=2, values=layer_work(trace))
    layers = trace.header.target["layers"]
    exit_layer = trace.header.method.get("exit_layer") or 0
    columns = {place: x for x, place in enumerate(dict.fromkeys(zip(table["iteration"], table["position"], strict=True)))}
    # A gap between iterations, so that it is seen that a position can come twice: refused, then read anew.
    x = [columns[place] + 0.6 * (place[0] - 1 - first) for place in zip(table["iteration"], table["position"], strict=True)]
    table_x = table.assign(x=x)
    fig = go.Figure()
    for computed, base, height in (("early", 0, exit_layer), ("late", exit_layer, layers - exit_layer)):
        for fate in ("kept", "thrown"):
            part = table_x[(table_x["computed"] == computed) & (table_x["fate"] == fate)]
            if part.empty:
                continue
            marker = look.bar(computed) if fate == "kept" else look.bar("refused")
            if fate == "thrown":  # the border keeps who computed it
                marker["line"] = {"width": 1.5, "color": look.colour(computed)}
            fig.add_bar(
                x=part["x"], y=[height] * len(part), base=base, width=0.84, marker=marker, customdata=part["iteration"] - 1,
                name=look.word(f"kvq.{computed}.{fate}"), hoverinfo="text",
                hovertext=[_hover(row, look) for row in part.to_dict("records")],
            )  # fmt: skip
    one = table_x.drop_duplicates("x")
    fig.update_xaxes(
        tickvals=one["x"], ticktext=[token(text, 8) for text in one["text"]], tickangle=-90, ticklen=2, showgrid=False,
        range=[-0.7, max(one["x"].max(), 6) + 0.7], tickfont={"size": 11},
    )  # fmt: skip
    if len(one) > 2 * _MOST:
        fig.update_xaxes(showticklabels=False)
    for number, part in one.groupby("iteration"):
        fig.add_annotation(
            x=float(part["x"].mean()), y=layers, yanchor="bottom", showarrow=False, text=str(number), yshift=1,
            font={"size": 12, "color": look.colour("muted")},
        )  # fmt: skip
    fig.update_layout(barmode="overlay", xaxis_title=look.word("kvq.positions"))
    fig.update_yaxes(range=[0, layers * 1.1], tick0=0, dtick=max(1, round(layers / 6)), showgrid=False)
    heading(fig, look.word("kvq.heading"), look)
    finish(fig, look, name="kvq", table=table, panels=2, values=layer_work(trace))
    return fig


def layer_work(trace: Trace) -> dict[str, int]:
    """Layer passes (one layer at one position) of the whole run: with the shared cache, without it, and thrown away.

    Without it, the drafter has a cache of its own, and verification computes all layers anew.
    """
    layers = trace.header.target["layers"]
    exit_layer = trace.header.method.get("exit_layer") or 0
    read = sum(step.drafted + 1 for step in trace.iterations)
    refused = sum(step.drafted - step.accepted for step in trace.iterations)
    drafted = sum(step.drafted for step in trace.iterations)
    return {
        "shared": read * layers, "separate": read * layers + drafted * exit_layer, "thrown": refused * layers,
    }  # fmt: skip


def _last_texts(trace: Trace) -> dict[int, str]:
    """The text's last token when each iteration began: it is read together with the drafted ones."""
    last = trace.header.prompt_pieces[-1] if trace.header.prompt_pieces else trace.header.prompt[-4:]
    out = {}
    for step in trace.iterations:
        out[step.index] = last
        if step.ending is not None:
            last = step.ending.text
        elif step.accepted:
            last = step.draft[step.accepted - 1].text
    return out


def _hover(row: dict, look: Look) -> str:
    return "<br>".join(
        [
            f"<b>{token(row['text'])}</b> {look.word('column.position')} {row['position']}",
            f"{look.word('column.layers')} {row['layers']}: {look.word('kvq.' + row['computed'] + '.' + row['fate'])}",
            f"{look.word('column.iteration')} {row['iteration']}",
        ]
    )
