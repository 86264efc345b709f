"""Stacked panels over one x axis, each with a heading of its own, left above it: no rotated axis titles."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specviz.figures.theme import Look


def stacked(
    headings: Sequence[str], look: Look, *, shares: Sequence[float] | None = None, same_x: bool = True, gap: float = 0.12
) -> go.Figure:
    """An empty figure with one panel a heading, top to bottom. shares: relative heights of the panels."""
    fig = make_subplots(
        rows=len(headings), cols=1, shared_xaxes=same_x, vertical_spacing=gap, row_heights=list(shares) if shares else None
    )
    for row, text in enumerate(headings, 1):
        heading(fig, text, look, row=row)
    return fig


def heading(fig: go.Figure, text: str, look: Look, *, row: int = 1) -> None:
    """A line of text left above a panel, in the place of a rotated axis title."""
    name = "y" if row == 1 else f"y{row}"
    fig.add_annotation(
        text=text, showarrow=False, x=0, xref="paper", xanchor="left", y=1, yref=f"{name} domain",
        yanchor="bottom", yshift=3, font={"size": 12, "color": look.colour("muted")}, align="left",
    )  # fmt: skip
