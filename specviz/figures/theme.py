"""One table of colours and marks, one look for every figure, and the table that goes with each figure.

The table has two ideas. *Who worked*: the drafter is amber, the target blue; early layers draft and late layers
verify, so they share these. *What became of a token*: accepted, refused, or the target's own (correction, bonus).
Every meaning also has a symbol, a glyph, a pattern and a dash, because colour may never carry a meaning alone.
The page takes its CSS variables from here (``css_variables``), so that a token has the same colour in text and figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.words import word


@dataclass(frozen=True, slots=True)
class Meaning:
    """How one meaning looks: a colour on light and on dark ground, and the marks that repeat it without colour.

    symbol: Plotly marker. glyph: one character for text. pattern: Plotly fill pattern ("" is solid). dash: line.
    """

    light: str
    dark: str
    symbol: str
    glyph: str
    pattern: str = ""
    dash: str = "solid"


# The order is the order of legends. Colours are at least 8 apart (OKLab, times 100) from those that they appear with,
# for normal sight and for the three kinds of colour blindness; tests/figures/test_theme.py measures it.
MEANINGS: Mapping[str, Meaning] = {
    # what became of a token
    "accepted": Meaning("#12806a", "#2bbf97", "circle", "✓"),
    "refused": Meaning("#a8200d", "#f0501e", "x", "✗", pattern="x", dash="dot"),
    "correction": Meaning("#24207f", "#6c80ff", "diamond", "◆", pattern="\\"),
    "bonus": Meaning("#1995fd", "#8fdcff", "star", "★", pattern="."),
    "pending": Meaning("#8d9099", "#7d8088", "circle-open", "…", pattern="-", dash="dash"),
    # who worked
    "draft": Meaning("#cf7f12", "#fbb03b", "square-open", "□", pattern="/"),
    "target": Meaning("#2a49b8", "#5f8bff", "square", "■"),
    "early": Meaning("#cf7f12", "#fbb03b", "triangle-down", "▼", pattern="/"),
    "late": Meaning("#2a49b8", "#5f8bff", "triangle-up", "▲"),
    "other": Meaning("#b9bdc6", "#565c68", "line-ns-open", "▫", pattern="|", dash="dash"),
    # what could be, and what was chosen
    "oracle": Meaning("#6a1b86", "#c9a6ff", "diamond-tall-open", "◇", pattern="+", dash="longdash"),
    "threshold": Meaning("#b93fc0", "#d060c8", "line-ew-open", "╌", pattern="-", dash="dash"),
    # what is measured
    "speed": Meaning("#161b26", "#f2f4f8", "hexagon", "⬢"),
    "best": Meaning("#161b26", "#f2f4f8", "star-open", "☆"),
}

# Meanings that are drawn in one picture and so must be told apart.
TOGETHER: tuple[tuple[str, ...], ...] = (
    ("accepted", "refused", "correction", "bonus", "pending"),
    ("draft", "accepted", "oracle", "refused"),
    ("draft", "target", "other"),
    ("draft", "target", "oracle"),
    ("early", "late", "refused"),
    ("speed", "accepted", "draft", "refused"),
    ("accepted", "refused", "threshold", "speed"),
)

# Ground, text and lines: (light, dark)
NEUTRALS: Mapping[str, tuple[str, str]] = {
    "surface": ("#ffffff", "#14181f"),
    "ink": ("#161b26", "#f2f4f8"),
    "muted": ("#5a6270", "#a3abb8"),
    "grid": ("#e3e6eb", "#2c333f"),
    "axis": ("#8a919e", "#6d7686"),
}

# Dark means little, light means much, on both grounds; safe for colour-blind readers and in grey print.
SCALE = "Cividis"
FONT = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Hiragino Sans", "Yu Gothic", "Noto Sans CJK JP", '
    "sans-serif"
)
MONO = 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", "Noto Sans Mono CJK JP", monospace'

# A figure's height never depends on its data, so that a page does not jump. Pixels, by number of stacked panels.
HEIGHTS = {1: 360, 2: 480, 3: 620}


@dataclass(frozen=True)
class Look:
    """How to draw: on dark or light ground, in which language. The same figure, otherwise."""

    dark: bool = False
    lang: str = "en"

    def colour(self, meaning: str) -> str:
        """Hex colour of a meaning, or of a neutral ("ink", "grid" …)."""
        if meaning in NEUTRALS:
            return NEUTRALS[meaning][self.dark]
        entry = MEANINGS[meaning]
        return entry.dark if self.dark else entry.light

    def tint(self, meaning: str, share: float = 0.18) -> str:
        """The colour mixed into the ground: for backgrounds behind text and for bands."""
        return mix(self.colour("surface"), self.colour(meaning), share)

    def word(self, key: str, **values: Any) -> str:
        """A text of the figures in this language."""
        return word(key, self.lang, **values)

    def marker(self, meaning: str, size: float = 9, **more: Any) -> dict[str, Any]:
        """Plotly marker of a meaning: its colour and its symbol, which is readable without the colour."""
        symbol = MEANINGS[meaning].symbol
        colour = self.colour(meaning)
        width = 2 if symbol.endswith("open") else 0
        return {"color": colour, "symbol": symbol, "size": size, "line": {"width": width, "color": colour}, **more}

    def bar(self, meaning: str, **more: Any) -> dict[str, Any]:
        """Plotly bar marker of a meaning: its colour, and its pattern drawn over a tint of it."""
        colour = self.colour(meaning)
        shape = MEANINGS[meaning].pattern
        marker: dict[str, Any] = {"color": colour, "line": {"width": 1, "color": colour}, **more}
        if shape:
            marker["color"] = self.tint(meaning, 0.30)
            marker["pattern"] = {
                "shape": shape, "fgcolor": colour, "bgcolor": self.tint(meaning, 0.30), "size": 6, "solidity": 0.35,
            }  # fmt: skip
        return marker

    def line(self, meaning: str, width: float = 2, **more: Any) -> dict[str, Any]:
        """Plotly line of a meaning: its colour and its dash."""
        return {"color": self.colour(meaning), "dash": MEANINGS[meaning].dash, "width": width, **more}

    @cached_property
    def template(self) -> go.layout.Template:
        """The Plotly template; small, because it travels with every figure."""
        ink, muted, grid, ground = (self.colour(name) for name in ("ink", "muted", "grid", "surface"))
        axis = {
            "gridcolor": grid, "zerolinecolor": grid, "linecolor": self.colour("axis"), "showline": True,
            "ticks": "outside", "ticklen": 4, "tickcolor": self.colour("axis"), "automargin": True,
            "tickfont": {"size": 12, "color": muted}, "title": {"standoff": 8, "font": {"size": 13}},
            "zeroline": False,
        }  # fmt: skip
        return go.layout.Template(
            layout={
                "font": {"family": FONT, "size": 13, "color": ink},
                "paper_bgcolor": ground,
                "plot_bgcolor": ground,
                "colorway": [self.colour(name) for name in ("accepted", "draft", "target", "oracle", "refused")],
                "margin": {"l": 52, "r": 16, "t": 58, "b": 48},
                "title": {
                    "x": 0, "xref": "container", "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top",
                    "pad": {"l": 12, "t": 12}, "font": {"size": 15, "color": ink},
                },
                "xaxis": axis,
                "yaxis": axis,
                "legend": {
                    "orientation": "h", "x": 0, "xref": "container", "xanchor": "left", "y": 0, "yref": "container",
                    "yanchor": "bottom", "bgcolor": "rgba(0,0,0,0)", "font": {"size": 11.5}, "itemwidth": 30,
                },
                "hoverlabel": {
                    "bgcolor": mix(ground, ink, 0.06), "bordercolor": self.colour("axis"), "align": "left",
                    "font": {"family": MONO, "size": 12, "color": ink},
                },
                "hovermode": "closest",
                "bargap": 0.15,
            }
        )  # fmt: skip


LIGHT = Look()
DARK = Look(dark=True)


def mix(ground: str, colour: str, share: float) -> str:
    """A hex colour mixed into another: share 0 gives the ground, 1 the colour."""
    pairs = ((int(ground[i : i + 2], 16), int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def series(number: int, look: Look) -> dict[str, str]:
    """Colour, symbol and dash of the n-th of several equals that have no meaning of their own (tasks, prompts, runs).

    Shades of one hue from dark to light, so that they are not mistaken for a meaning; symbol and dash tell them apart.
    """
    symbols = ("circle", "square", "triangle-up", "diamond", "cross", "x")
    dashes = ("solid", "dash", "dot", "longdash", "dashdot", "longdashdot")
    share = (0.95, 0.75, 0.58)[number % 3]
    hue = mix(look.colour("ink"), look.colour("oracle"), 0.75)
    return {
        "color": mix(look.colour("surface"), hue, share),
        "symbol": symbols[number % len(symbols)],
        "dash": dashes[number % len(dashes)],
    }


def css_variables(dark: bool) -> dict[str, str]:
    """CSS custom properties of the whole table: ``--sv-accepted``, ``--sv-accepted-soft`` (ground for text), ``--sv-ink``."""
    look = Look(dark)
    out = {f"--sv-{name}": look.colour(name) for name in NEUTRALS}
    for name in MEANINGS:
        out[f"--sv-{name}"] = look.colour(name)
        out[f"--sv-{name}-soft"] = look.tint(name)
    return out


def as_plain() -> dict[str, dict[str, str]]:
    """The table as plain values for the page's own drawing: meaning -> light, dark, symbol, glyph, pattern, dash."""
    names = ("light", "dark", "symbol", "glyph", "pattern", "dash")
    return {meaning: {name: getattr(entry, name) for name in names} for meaning, entry in MEANINGS.items()}


def finish(
    fig: go.Figure, look: Look, *, name: str, table: pd.DataFrame, panels: int = 1, values: Mapping[str, Any] | None = None
) -> go.Figure:
    """Give a figure its look, its fixed height, its title and what one learns from it, and its table.

    name: key of the figure in the words; ``NAME.title`` and ``NAME.learn`` must exist. The table travels in
    ``layout.meta`` (read it with ``table_of``): what is drawn and what is read aloud are the same data.
    """
    fig.update_layout(
        template=look.template,
        height=HEIGHTS[panels],
        title_text=look.word(f"{name}.title"),
        meta={
            "name": name,
            "learn": look.word(f"{name}.learn", **(values or {})),
            "columns": [str(column) for column in table.columns],
            "rows": _plain_rows(table),
        },
    )
    return fig


def table_of(fig: go.Figure) -> pd.DataFrame:
    """The table behind a figure made here: for readers who cannot see it, and for download."""
    meta = fig.layout.meta
    if not meta or "rows" not in meta:
        raise ValueError("this figure carries no table; only figures of specviz.figures do")
    return pd.DataFrame(meta["rows"], columns=list(meta["columns"]))


def empty(
    look: Look, *, name: str, columns: Sequence[str], panels: int = 1, values: Mapping[str, Any] | None = None
) -> go.Figure:
    """A figure that has no data yet: it says so, keeps its height and title, and has an empty table."""
    fig = go.Figure()
    fig.add_annotation(
        text=look.word("empty"), showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper",
        font={"color": look.colour("muted"), "size": 14},
    )  # fmt: skip
    fig.update_xaxes(visible=False).update_yaxes(visible=False)
    return finish(fig, look, name=name, table=pd.DataFrame(columns=list(columns)), panels=panels, values=values)


def _plain_rows(table: pd.DataFrame) -> list[list[Any]]:
    rows = table.astype(object).where(table.notna(), None)
    return [[_plain(value) for value in row] for row in rows.itertuples(index=False, name=None)]


def _plain(value: Any) -> Any:
    item = value.item() if hasattr(value, "item") else value
    return round(item, 6) if isinstance(item, float) else item
