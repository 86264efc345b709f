"""Figures for the page: what Plotly in the browser needs, and nothing else."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

from specviz.figures.theme import Look
from specviz.ui.texts import language


def look_of(data: object) -> Look:
    """The look that a page asks for."""
    if not isinstance(data, dict):
        return Look()
    return Look(dark=data.get("dark") is True, lang=language(data.get("lang")))


def plain(figure: go.Figure) -> str:
    """A figure as JSON. The title is left to the page, which sets it as a heading; the template it has already."""
    raw: dict[str, Any] = figure.to_plotly_json()
    layout = {key: value for key, value in raw["layout"].items() if key != "template"}
    title = layout.pop("title", {})
    layout["meta"] = {**layout.get("meta", {}), "title": title.get("text", "")}
    return to_json_plotly({"data": raw["data"], "layout": layout})
