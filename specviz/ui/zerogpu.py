"""ZeroGPU Spaces lend a GPU to a process of its own for each run. Elsewhere nothing of this is used, and the package
``spaces`` is not needed.

The models are put on the GPU when the page starts; the process that gets the GPU has them from there. What crosses
between the processes is plain Python: a request as a dict, messages as pairs of strings, numbers, lists and dicts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

# What a run takes beside its tokens: the GPU is handed over, caches are made. Seconds.
START_SECONDS = 10
# Of the slowest method on the largest model that is offered there, for each new token; the target runs again to compare.
TOKEN_SECONDS = 0.08
# A longer wish is refused by ZeroGPU for visitors who are not logged in.
MOST_SECONDS = 110

_shelf = None
_decorated = None


def here() -> bool:
    """Is this a ZeroGPU Space?"""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def duration(kind: str, request: dict[str, Any]) -> int:
    """Seconds of GPU that a request is expected to need at most."""
    if kind == "race":
        tokens = sum(run["limit"] for run in request["runs"])
    else:
        # Decoding runs twice, to compare; a probe reads the output once more for each exit layer, and measures costs.
        tokens = request["limit"] * (2 if kind == "decode" else 3)
    return min(MOST_SECONDS, round(START_SECONDS + TOKEN_SECONDS * tokens))


def prepare(shelf, pairs: list[tuple[str, str | None]]) -> None:
    """Put the models of these pairs on the GPU and name the function that will use it; called before the page opens."""
    import spaces

    global _shelf, _decorated
    _shelf = shelf
    shelf.keep_on_gpu(list(dict.fromkeys(name for pair in pairs for name in pair if name)))
    _decorated = spaces.GPU(duration=duration)(on_gpu)


def messages(kind: str, request: dict[str, Any]) -> Iterator[tuple[str, Any] | None]:
    """The messages of a run's work (see ``work``), from the process that has the GPU."""
    from gradio import Error

    from specviz.errors import UsageError

    steps = _decorated(kind, request)
    try:
        yield from steps
    except Error as error:  # no quota is left, or the time is over: ZeroGPU says so in words for the visitor
        raise UsageError(str(error.message)) from error
    finally:
        steps.close()


def on_gpu(kind: str, request: dict[str, Any]) -> Iterator[tuple[str, Any] | None]:
    """In the process that has the GPU: do the work. Ends with ("failed", message and field) where it cannot go on."""
    from specviz.ui.perform import explain
    from specviz.ui.requests import from_plain
    from specviz.ui.work import WORK

    checked = from_plain(kind, request)
    try:
        yield from WORK[kind](checked, _shelf, None)
    except Exception as error:
        yield "failed", explain(error, checked.lang)
