"""The layer lens as a picture: layers over positions, what each exit would write, and where the answer is settled."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.lens import LensTable
from specviz.figures.panels import heading
from specviz.figures.text import token
from specviz.figures.theme import LIGHT, SCALE, Look, empty, finish

_COLUMNS = ("layer", "position", "after", "says", "probability", "final")
SHOWN = 24  # positions in one picture, readable at 390 pixels; a reader pages through longer texts with ``start``
MOST_WORDS = 12  # with words in the cells


def lens_table(table: LensTable) -> pd.DataFrame:
    """One row for each layer and position: what an exit there says, how surely, and whether the whole model agrees."""
    return pd.DataFrame(table.records()).rename(columns={"text": "says"})[list(_COLUMNS)]


def lens(
    table: LensTable | None, start: int | None = None, chosen: int | None = None, words: bool = False, look: Look = LIGHT
) -> go.Figure:
    """Layers (bottom to top) over the positions of a text; colour is the probability of what the exit would write.

    One learns where an early exit is safe: above the stepped line the answer of a position no longer changes, so all
    layers above it only confirm. Dots mark every exit that gives the final answer. Where the line lies low, an early
    exit drafts well.

    start: first position shown (default: the last ``SHOWN`` of the text). chosen: an exit layer in use, drawn as a line.
    words: write the tokens into the cells, bold where they are final: for wide places, ``MOST_WORDS`` positions at most.
    """
    if table is None:
        return empty(look, name="lens", columns=_COLUMNS, panels=3, values={"agree": "–"})
    count, most = len(table.ids), MOST_WORDS if words else SHOWN
    start = max(count - most, 0) if start is None else start
    if not 0 <= start < count:
        raise ValueError(f"lens: start={start}, this text has the positions 0..{count - 1}")
    part = table.window(start, start + most)
    columns = len(part.ids)
    x, y = np.arange(start, start + columns), np.arange(1, part.layers + 1)
    said = [[token(part.text(layer, place), 9) for place in range(columns)] for layer in y]
    fig = go.Figure()
    fig.add_heatmap(
        x=x, y=y, z=part.probabilities, zmin=0, zmax=1, colorscale=SCALE, xgap=1, ygap=1,
        hovertext=_hover(part, said, start, look), hoverinfo="text", showscale=True,
        colorbar={
            "thickness": 12, "len": 1.04, "x": 1.01, "outlinewidth": 0, "ticks": "outside", "ticklen": 3, "tickformat": ".0%",
            "tickvals": [0, 0.5, 1],
        },
    )  # fmt: skip
    if words:
        fig.update_traces(
            text=[
                [f"<b>{text}</b>" if same else text for text, same in zip(*pair, strict=True)]
                for pair in zip(said, part.equal, strict=True)
            ],
            texttemplate="%{text}", textfont={"size": 9 if part.layers > 16 else 11},
        )  # fmt: skip
    else:
        layer, place = np.nonzero(part.equal)
        fig.add_scatter(
            x=x[place], y=y[layer], mode="markers", hoverinfo="skip", name=look.word("lens.dot"),
            marker={"symbol": "circle", "size": 5, "color": "#ffffff", "line": {"width": 1, "color": "#000000"}},
        )  # fmt: skip
    # The first layer of the final answer, stepped from column to column: half a cell below it, across the whole cell.
    edge = np.append(part.settled, part.settled[-1]) - 0.5
    steps = {"x": np.append(x, x[-1] + 1) - 0.5, "y": edge, "mode": "lines", "hoverinfo": "skip"}
    # A white line in a black one is seen on every colour of the scale and on both grounds.
    fig.add_scatter(**steps, line={"shape": "hv", "width": 5, "color": "#000000"}, showlegend=False)
    fig.add_scatter(**steps, line={"shape": "hv", "width": 2.5, "color": "#ffffff"}, showlegend=False)
    fig.add_scatter(
        x=[None], y=[None], mode="lines", name=look.word("lens.settled"), line={"width": 3, "color": look.colour("ink")}
    )
    if chosen is not None:
        fig.add_hline(y=chosen + 0.5, line=look.line("early", 2, dash="dash"))
        fig.add_scatter(
            x=[None], y=[None], mode="lines", name=look.word("lens.chosen", layer=chosen),
            line=look.line("early", 2, dash="dash"),
        )  # fmt: skip
    if 1 < part.prompt < columns:  # with a single token of the prompt, all that is shown was written
        border = x[0] + part.prompt - 0.5
        fig.add_vline(x=border, line={"color": look.colour("ink"), "dash": "dot", "width": 1.5})
        # The words stand where there is room for them: over what they name, or before it with an arrow.
        late = part.prompt > 0.5 * columns
        fig.add_annotation(
            x=border, y=1, yref="paper", yanchor="bottom", xanchor="right" if late else "left", xshift=-3 if late else 3,
            showarrow=False, text=look.word("lens.written") + (" →" if late else ""),
            font={"size": 12, "color": look.colour("muted")},
        )  # fmt: skip
    fig.update_xaxes(
        tickvals=x, ticktext=[token(piece, 9) for piece in part.pieces], tickangle=-90, ticklen=2, showgrid=False,
        range=[x[0] - 0.5, x[-1] + 0.5], title_text=look.word("lens.after"), tickfont={"size": 11},
    )  # fmt: skip
    fig.update_yaxes(
        range=[0.5, part.layers + 0.5], tick0=0 if part.layers > 16 else 1, showgrid=False,
        dtick=1 if part.layers <= 16 else 5,
    )  # fmt: skip
    heading(fig, look.word("lens.heading"), look)
    return finish(
        fig, look, name="lens", table=lens_table(part), panels=3,
        values={"agree": f"{_half(table)} / {table.layers}"},
    )  # fmt: skip


def _half(table: LensTable) -> int:
    """The first layer at which at least half of all positions are settled."""
    return sorted(table.settled.tolist())[(len(table.ids) - 1) // 2]


def _hover(part: LensTable, said: list[list[str]], start: int, look: Look) -> list[list[str]]:
    equal = part.equal
    return [
        [
            f"{look.word('column.position')} {start + place}, {look.word('column.layer')} {layer + 1}<br>"
            f"{token(part.pieces[place])} → <b>{said[layer][place]}</b> {part.probabilities[layer, place]:.1%}<br>"
            + look.word("lens.same" if equal[layer, place] else "lens.other", final=said[-1][place])
            for place in range(len(part.ids))
        ]
        for layer in range(part.layers)
    ]
