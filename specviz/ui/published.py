"""The published tables for the page, each row with a way to run it here or the reason why not."""

from __future__ import annotations

from typing import Any

from specviz.bench.published import SOURCES, Row
from specviz.models import zoo
from specviz.ui.shelf import Shelf


def tables(shelf: Shelf, memory: float) -> list[dict[str, Any]]:
    """The sources as plain JSON values. memory: bytes that models may take on this machine."""
    return [
        {
            "name": source.name,
            "title": source.title,
            "source": source.source,
            "hardware": source.hardware,
            "columns": list(source.columns),
            "note": source.note,
            "rows": [_row(row, shelf, memory) for row in source.rows],
        }
        for source in SOURCES
    ]


def _row(row: Row, shelf: Shelf, memory: float) -> dict[str, Any]:
    out: dict[str, Any] = {"cells": list(row.cells), "pair": row.pair, "method": row.method, "exit_layer": row.exit_layer}
    if row.pair is not None:
        out["why"] = why_not(row.pair, shelf, memory)
    return out


def why_not(pair: str, shelf: Shelf, memory: float) -> dict[str, Any] | None:
    """Why a pair cannot be run here, as a key of the texts with its values; None if it can."""
    names = [name for name in (zoo.PAIRS[pair].target, zoo.PAIRS[pair].draft) if name]
    models = [zoo.MODELS[name] for name in names]
    needed = sum(model.memory(4) for model in models)
    if needed > memory:
        return {"key": "published.too_large", "values": {"needed": round(needed / 1e9), "here": round(memory / 1e9)}}
    missing = [model for model in models if not model.here and shelf.layers(model.name) is None]
    if any(model.needs_token for model in missing):
        return {"key": "published.gated", "values": {"name": next(m.where for m in missing if m.needs_token)}}
    return None
