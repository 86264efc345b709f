"""Traces in JSONL files: one record a line."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import MISSING, fields
from typing import Any, TextIO

from specviz.trace.checks import from_plain, strict_json
from specviz.trace.records import Footer, Header, Record, Trace, TraceError


def to_json(record: Record) -> str:
    """One record as one line of strict JSON (no NaN, no line break); default values are left out."""
    return json.dumps(_plain(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_plain(record: Record) -> dict[str, Any]:
    """One record as plain dicts, lists, strings and numbers: what the page receives."""
    return _plain(record)


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        # "kind" and "schema" carry meaning at their defaults, everything else may be left out there.
        return {
            f.name: _plain(getattr(value, f.name))
            for f in fields(value)
            if f.name in ("kind", "schema") or getattr(value, f.name) != _default(f)
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


_MISSING = object()


def _default(f) -> Any:
    if f.default is not MISSING:
        return f.default
    return f.default_factory() if f.default_factory is not MISSING else _MISSING


class TraceWriter:
    """Writes records to a JSONL file as they come, each line flushed, so that a killed run keeps what it had.

    While the run goes on the file is ``path`` with ``.part`` appended; closing renames it. An unfinished
    file opens all the same. Where a write fails (OSError: the disk is full) the part stays under its own name.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        self._part = self.path + ".part"
        # Half of a surrogate pair cannot be encoded; its backslash form is JSON's own way to write it.
        self._file: TextIO | None = open(  # noqa: SIM115
            self._part, "w", encoding="utf-8", errors="backslashreplace", newline="\n"
        )

    def write(self, record: Record) -> None:
        assert self._file is not None, "write after close"
        try:
            self._file.write(to_json(record) + "\n")
            self._file.flush()
        except OSError:
            file, self._file = self._file, None
            with suppress(OSError):  # it tries once more to write what it holds
                file.close()
            raise

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
            os.replace(self._part, self.path)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind, *_: object) -> None:
        # What was made is kept, also when the run failed: the trace then has no footer and says so.
        self.close()


def write_trace(path: str | os.PathLike[str], trace: Trace) -> None:
    """Write a whole trace to a file."""
    with TraceWriter(path) as writer:
        for record in records_of(trace):
            writer.write(record)


def records_of(trace: Trace) -> Iterator[Record]:
    yield trace.header
    yield from trace.iterations
    if trace.footer is not None:
        yield trace.footer


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a JSONL file. Raises TraceError with the line number where a line is broken.

    A last line without its line break is what a killed process leaves: it is dropped and named in
    ``problems``, as is a missing footer.
    """
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        return parse_trace(file)


def parse_trace(lines: Iterable[str]) -> Trace:
    """Build a trace from the lines of a file (see read_trace)."""
    trace: Trace | None = None
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = from_plain(strict_json(line))
        except TraceError as error:
            if not line.endswith("\n") and trace is not None:
                problems.append(f"line {number} is cut short and was left out")
                break
            raise TraceError(f"line {number}: {error}") from None
        if record is None:
            continue
        if isinstance(record, Header):
            if trace is not None:
                raise TraceError(f"line {number}: a second header; one file holds one run")
            trace = Trace(record)
        elif trace is None:
            raise TraceError(f"line {number}: a {record.kind} before the header; this is not a trace file")
        elif trace.footer is not None:
            raise TraceError(f"line {number}: a record after the footer")
        elif isinstance(record, Footer):
            trace.footer = record
        else:
            if record.index != len(trace.iterations):
                raise TraceError(
                    f"line {number}: iteration {record.index} where {len(trace.iterations)} was expected"
                )
            trace.iterations.append(record)
    if trace is None:
        raise TraceError("the file holds no records; this is not a trace file")
    if trace.footer is None:
        problems.append("the run is unfinished: it has no footer")
    trace.problems = problems
    return trace
