"""The rows of the sources' tables that can be run: which pair, task and method each one is, and its published speed-up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specviz.bench.published import DYNAMIC, LAYERSKIP
from specviz.decoding import MethodConfig
from specviz.errors import UsageError

_TASKS = {"summarisation": "summarisation", "open-ended": "open-ended", "code (python)": "code"}
# The two-model baselines of the LayerSkip table, as pairs of the zoo.
_BASELINES = {"TinyLlama": "tinyllama", "Llama-3.2-1B": "llama-3.2-1b"}


@dataclass(frozen=True)
class RunnableRow:
    """group: opt, codegen, flan-t5, llama, pythia or layerskip. pair: of the zoo. task: a shipped prompt set.

    published: speed-up over plain generation, or None where the source names the pair without a number.
    """

    group: str
    pair: str
    task: str
    method: MethodConfig
    published: float | None
    source: str


def _dynamic() -> Iterator[RunnableRow]:
    place = f"{DYNAMIC.source}; {DYNAMIC.hardware}"
    for row in DYNAMIC.rows:
        cells = dict(zip(DYNAMIC.columns, row.cells, strict=True))
        for name in ("heuristic", "dynamic"):
            yield RunnableRow(row.pair, row.pair, _TASKS[cells["task"]], MethodConfig(name), cells[name], place)
    yield RunnableRow("pythia", "pythia", "code", MethodConfig("dynamic"), None, place)


def _layerskip() -> Iterator[RunnableRow]:
    place = f"{LAYERSKIP.source}; {LAYERSKIP.hardware}"
    for row in LAYERSKIP.rows:
        cells = dict(zip(LAYERSKIP.columns, row.cells, strict=True))
        method = MethodConfig("early-exit", exit_layer=row.exit_layer)
        yield RunnableRow("layerskip", row.pair, "summarisation", method, cells["speedup"], place)
        if cells["two_model"]:
            draft, speedup = cells["two_model"].split()
            pair = f"{row.pair}-{_BASELINES[draft]}"
            yield RunnableRow("layerskip", pair, "summarisation", MethodConfig("constant"), float(speedup), place)


ROWS: tuple[RunnableRow, ...] = (*_dynamic(), *_layerskip())
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))


def rows_of(groups: str) -> tuple[RunnableRow, ...]:
    """The rows of groups given as 'opt,llama' or 'all'. UsageError for a name that is none."""
    names = GROUPS if groups == "all" else tuple(name.strip() for name in groups.split(",") if name.strip())
    for name in names:
        if name not in GROUPS:
            raise UsageError(f"--rows {name}: choose from {', '.join(GROUPS)}, or all")
    return tuple(row for row in ROWS if row.group in names)
