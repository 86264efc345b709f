"""Interleaved runs: every engine takes its turn on every prompt in every repetition, so a slow moment falls on all.

A row is one engine on one prompt in one repetition. Rows are appended to a JSONL file as they finish; a measurement that
was stopped goes on in its file. The first engine is what the others' outputs have to be: an engine that gives another
token anywhere is refused and has no speed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from specviz.bench.engines import Engine
from specviz.errors import UsageError

Tell = Callable[[int, int], None]  # (runs done, runs in all)


@dataclass(frozen=True)
class Row:
    """One run. seconds: from the prompt's ids to the last token, prefill included. digest: of the output's ids.
    drafted, accepted, iterations: where the engine tells. load: processes that wanted a core."""

    engine: str
    family: str
    method: str
    prompt: str
    repetition: int
    tokens: int
    seconds: float
    digest: str
    drafted: int | None = None
    accepted: int | None = None
    iterations: int | None = None
    stream: str | None = None
    load: float | None = None
    fault: str | None = None  # why the engine could not run

    @property
    def key(self) -> tuple[str, str, int]:
        return self.engine, self.prompt, self.repetition


def measure(
    engines: Sequence[Engine],
    prompts: Sequence[tuple[str, Sequence[int]]],
    limit: int,
    repetitions: int,
    *,
    setting: dict,
    out: Path | None = None,
    tell: Tell | None = None,
    enough: Callable[[], bool] | None = None,
) -> list[Row]:
    """Run everything that is not in ``out`` yet; returns all rows. prompts: (name, ids).

    setting: what the rows belong to (models, prompts, threads); a file of another setting is an error. Each engine runs
    each prompt once before anything is timed. Repetitions alternate the engines' order, so that none always follows the same.
    enough: asked before each repetition but the first; they end when it says so.
    """
    rows = _begin(out, setting) if out is not None else []
    done = {row.key for row in rows}
    faults = {row.engine: row.fault for row in rows if row.fault}
    plan = [
        (engine, name, ids, turn)
        for turn in range(repetitions)
        for name, ids in prompts
        for engine in (engines if turn % 2 == 0 else engines[::-1])
        if (engine.name, name, turn) not in done
    ]
    warm: set[str] = set()
    last = 0
    for count, (engine, name, ids, turn) in enumerate(plan):
        if turn > last and enough is not None and enough():
            break
        last = turn
        if tell is not None:
            tell(count, len(plan))
        if engine.name in faults:
            continue
        try:
            if engine.name not in warm:
                warm.add(engine.name)
                for _, first in prompts:
                    engine.run(first, limit)
            row = _timed(engine, name, ids, turn, limit)
        except (torch.OutOfMemoryError, RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
            # A peer that fails on this model is told about, and the others go on.
            if engine.family == "ours":
                raise
            faults[engine.name] = fault = f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
            row = Row(engine.name, engine.family, engine.method, name, turn, 0, 0.0, "", fault=fault)
        rows.append(row)
        if out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    if tell is not None:
        tell(len(plan), len(plan))
    return rows


def _timed(engine: Engine, name: str, prompt: Sequence[int], turn: int, limit: int) -> Row:
    _settle()
    began = time.perf_counter()
    ids = engine.run(prompt, limit)
    _settle()
    seconds = time.perf_counter() - began
    counts = engine.counts() or {}
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Row(engine.name, engine.family, engine.method, name, turn, len(ids), seconds, digest(ids), load=load, **counts)


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def digest(ids: Sequence[int]) -> str:
    """A short name of an output, equal for equal ids."""
    return hashlib.sha256(json.dumps([int(token) for token in ids]).encode()).hexdigest()[:16]


def _begin(out: Path, setting: dict) -> list[Row]:
    """The rows that are in the file; a new file gets the setting as its first line."""
    if not out.exists() or not out.stat().st_size:
        try:
            out.write_text(json.dumps({"setting": setting}) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{out}: {error.strerror}") from error
        return []
    lines = out.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):  # cut off in the middle of a row: that run is made again
        lines.pop()
        out.write_text("".join(lines), encoding="utf-8")
    first, rows = _parsed(out, lines)
    if first != json.loads(json.dumps(setting)):
        raise UsageError(f"{out} holds another measurement (models, prompts or settings differ): give another --out")
    return rows


def read_rows(path: Path) -> tuple[dict, list[Row]]:
    """Setting and rows of a finished measurement. UsageError where the file is missing or something else."""
    try:
        return _parsed(path, path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error


def _parsed(path: Path, lines: Sequence[str]) -> tuple[dict, list[Row]]:
    try:
        return json.loads(lines[0])["setting"], [Row(**json.loads(line)) for line in lines[1:]]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is no file of this command ({error}): give another --out") from error
