"""Recorded runs that ship with the page, and the examples that its forms offer."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from specviz.trace import read_trace
from specviz.ui.verdict import verdict

ASSETS = Path(__file__).resolve().parents[2] / "assets"
TRACES = ASSETS / "traces"
PLAIN = TRACES / "plain"  # the target alone on the same prompts, recorded beside them, each under its run's name

# The run on which the page opens: most visitors think in sentences, and every fate is in it.
FIRST = "smollm2-draft-fox.jsonl"


@cache
def catalogue() -> list[dict[str, Any]]:
    """One entry a recorded run, the first one first: file name, what its header says, and how it compares."""
    entries = []
    for path in sorted(TRACES.glob("*.jsonl"), key=lambda path: (path.name != FIRST, path.name)):
        with path.open(encoding="utf-8") as file:
            header = json.loads(file.readline())
        entries.append(
            {
                "file": path.name,
                "method": header["method"],
                "target": header["target"].get("name"),
                "draft": (header.get("draft") or {}).get("name"),
                "prompt": header["prompt"][:120],
                "command": header.get("command"),
                "check": _checked(path),
            }
        )
    return entries


def _checked(path: Path) -> dict[str, Any] | None:
    """The comparison with the target alone, where that was recorded too."""
    plain = PLAIN / path.name
    if not plain.is_file():
        return None
    return verdict(read_trace(path), read_trace(plain), None) | {"recorded": True}


def first() -> dict[str, str] | None:
    """The run that the page opens with, whole: it travels with the page, so that nothing has to be waited for."""
    entries = catalogue()
    if not entries:
        return None
    name = entries[0]["file"]
    return {"file": name, "text": (TRACES / name).read_text(encoding="utf-8")}
