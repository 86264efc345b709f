"""How many forwards each policy needs: measured here, and as published, apart from each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.metrics import measure
from specviz.figures import checks
from specviz.figures.panels import stacked
from specviz.figures.text import escaped
from specviz.figures.theme import LIGHT, Look, empty, finish
from specviz.trace import Trace

_COLUMNS = ("origin", "policy", "target_forwards", "draft_forwards")


@dataclass(frozen=True)
class Published:
    """Rows of a source that are drawn beside one's own: (policy, target forwards, draft forwards), and where from.

    label: the source in a few words, drawn above its panel (a key of the words, or a text); source: in full.
    """

    rows: tuple[tuple[str, int, int], ...]
    label: str
    source: str


# The source calls a constant lookahead static.
PUBLISHED = Published(
    (("static-5", 38, 192), ("oracle", 27, 129)),
    "policies.mbpp",
    "Dynamic speculation in Transformers 4.45 (Intel Labs and Hugging Face): one MBPP example on an RTX 4090",
)


def forwards_of(runs: Mapping[str, Trace]) -> pd.DataFrame:
    """Rows for ``policy_forwards`` from logged runs of one prompt: policy or method -> its trace."""
    rows = []
    for policy, trace in runs.items():
        numbers = measure(trace)
        rows.append((policy, numbers.target_forwards, numbers.draft_forwards))
    return pd.DataFrame(rows, columns=list(_COLUMNS[1:]))


def policy_table(measured: object, published: Published | None = PUBLISHED) -> pd.DataFrame:
    """One row a policy: origin ("measured", "published"), policy, target forwards, draft forwards."""
    own = checks.frame(measured, "policy_forwards", ("policy", "target_forwards", "draft_forwards"))
    checks.unique(own, "policy_forwards", ["policy"])
    if (own[["target_forwards", "draft_forwards"]] < 0).any(axis=None):
        raise ValueError("policy_forwards: a count below 0")
    own.insert(0, "origin", "measured")
    theirs = pd.DataFrame([("published", *row) for row in (published.rows if published else ())], columns=list(_COLUMNS))
    return pd.concat([own, theirs], ignore_index=True) if len(theirs) else own


def policy_forwards(measured: object, published: Published | None = PUBLISHED, look: Look = LIGHT) -> go.Figure:
    """Target and draft forwards of every policy on the same output, as bars with their counts.

    One learns what a policy buys: fewer target forwards means more accepted per verification, fewer draft forwards
    means less drafted in vain; the oracle bounds both. measured: a table with the columns policy, target_forwards,
    draft_forwards (more columns travel into the table), all from one prompt and model pair. published: a source's
    numbers, drawn in a panel and on an axis of their own.
    """
    table = policy_table(measured, published)
    if (table["origin"] == "measured").sum() == 0:
        return empty(look, name="policies", columns=_COLUMNS, panels=2)
    headings = [look.word("policies.measured")]
    parts = [table[table["origin"] == "measured"]]
    if published is not None:
        headings.append(look.word("policies.published", source=_word(published.label, look)))
        parts.append(table[table["origin"] == "published"])
    fig = stacked(headings, look, shares=[max(len(part), 1) + 0.5 for part in parts], same_x=False, gap=0.2)
    for row, part in enumerate(parts, 1):
        names = [policy_name(policy, look) for policy in part["policy"]]
        for worker in ("target", "draft"):
            counts = part[f"{worker}_forwards"]
            fig.add_bar(
                y=names, x=counts, orientation="h", row=row, col=1, offsetgroup=worker, legendgroup=worker,
                showlegend=row == 1, name=look.word(f"{worker}_forwards"), marker=look.bar(worker),
                text=[f"{count:.0f}" for count in counts], textposition="outside", cliponaxis=False,
                textfont={"color": look.colour("ink"), "size": 12},
                hovertext=[f"<b>{name}</b><br>{look.word(f'{worker}_forwards')} {count:.0f}"
                           for name, count in zip(names, counts, strict=True)],
                hoverinfo="text",
            )  # fmt: skip
        most = float(part[["target_forwards", "draft_forwards"]].max(axis=None))
        fig.update_xaxes(range=[0, max(most, 1) * 1.14], row=row, col=1)
        fig.update_yaxes(autorange="reversed", showgrid=False, row=row, col=1)
    fig.update_layout(barmode="group", bargap=0.3)
    fig.update_xaxes(title_text=look.word("axis.forwards"), row=len(parts), col=1)
    finish(fig, look, name="policies", table=table, panels=2)
    if published is not None:
        fig.layout.meta["source"] = published.source
    return fig


def policy_name(policy: str, look: Look) -> str:
    """A policy or method in the language of the figure; a name that the words do not hold stays as it is."""
    return _word(f"policy.{policy}", look, policy)


def _word(key: str, look: Look, otherwise: str | None = None) -> str:
    try:
        return look.word(key)
    except KeyError:
        return escaped(str(key if otherwise is None else otherwise))
