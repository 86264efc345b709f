"""The log of a decode: records, and their file format.

A trace is a header, iterations and a footer. In a file each record is one JSON object on its own line,
named by its ``kind``. This is the project's public format: it carries a schema number, files of older
schemas keep opening, unknown keys are ignored, and a broken line is reported with its number.

Standard library only, so that anything can read a trace without torch.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TextIO

SCHEMA = 1

STOP_REASONS = ("length", "confidence", "eos", "budget", "oracle", "no-match")
ENDS = ("eos", "limit", "context", "stopped")


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that was possible at a position, and its probability (0..1)."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class DraftToken:
    """One drafted token.

    confidence: probability (0..1) that the drafter gave to this token, after the same logits processing
    as the pick; 1.0 for a drafter without probabilities (prompt lookup). entropy: of the drafter's
    distribution, in nats. alternatives: the drafter's most probable tokens, most probable first.
    target_probability: what the target gave this token; None where the target never looked, that is
    behind the end of the sequence.
    """

    id: int
    text: str
    confidence: float
    entropy: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    target_probability: float | None = None


@dataclass(frozen=True, slots=True)
class TargetToken:
    """The target's own token that ended an iteration: a correction or a bonus."""

    id: int
    text: str
    kind: str  # "correction" in place of a refused token, "bonus" after a full acceptance
    probability: float | None = None
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Header:
    """What was asked for and with what. ``method`` is the full configuration as plain JSON values."""

    method: dict[str, Any]
    target: dict[str, Any]  # name, revision, dtype, device, layers
    draft: dict[str, Any] | None
    prompt: str
    prompt_ids: tuple[int, ...]
    limit: int  # most new tokens
    sampling: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    prompt_pieces: tuple[str, ...] = ()  # one per prompt id; they join to the tokenizer's own decoding
    versions: dict[str, str] = field(default_factory=dict)
    command: str | None = None  # the command line that made this run
    schema: int = SCHEMA
    kind: str = "header"


@dataclass(frozen=True, slots=True)
class Iteration:
    """One draft phase and one verification.

    start: position in the whole sequence (prompt included) of the first token that this iteration adds;
    for encoder-decoder models in the decoder's sequence. accepted: how many drafted tokens the target
    confirmed. ending: the target's own token, None where an accepted end-of-sequence token ended the run.
    policy: the state of the stop policy while drafting (lookahead, threshold). Times in seconds.
    """

    index: int
    start: int
    draft: tuple[DraftToken, ...]
    stop: str
    accepted: int
    ending: TargetToken | None
    policy: dict[str, Any] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    kind: str = "iteration"

    @property
    def drafted(self) -> int:
        return len(self.draft)

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids that this iteration adds to the output."""
        kept = tuple(token.id for token in self.draft[: self.accepted])
        return kept if self.ending is None else (*kept, self.ending.id)

    @property
    def text(self) -> str:
        """Text that this iteration adds to the output."""
        kept = "".join(token.text for token in self.draft[: self.accepted])
        return kept if self.ending is None else kept + self.ending.text


@dataclass(frozen=True, slots=True)
class Footer:
    """Why the run ended, and its totals. ``setup`` holds costs apart from the run (the oracle's first pass)."""

    end: str  # one of ENDS
    tokens: int
    iterations: int
    drafted: int
    accepted: int
    seconds: float  # everything after prefill: drafting, verifying, and the loop itself
    prefill_seconds: float
    tail: str = ""  # text of an unfinished character at the end, so that all texts join to the decoding
    setup: dict[str, Any] = field(default_factory=dict)
    kind: str = "footer"


Record = Header | Iteration | Footer


@dataclass
class Trace:
    """A run as it was logged. ``problems`` says in words what a file lacked; an unfinished run has no footer."""

    header: Header
    iterations: list[Iteration] = field(default_factory=list)
    footer: Footer | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.footer is not None

    @property
    def output_ids(self) -> tuple[int, ...]:
        return tuple(token for iteration in self.iterations for token in iteration.ids)

    @property
    def text(self) -> str:
        return "".join(iteration.text for iteration in self.iterations) + (self.footer.tail if self.footer else "")

    @classmethod
    def collect(cls, records: Iterable[Record]) -> Trace:
        """Build a trace from the records of a run."""
        trace: Trace | None = None
        for record in records:
            if isinstance(record, Header):
                trace = cls(record)
            elif trace is None:
                raise TraceError("a trace starts with its header")
            elif isinstance(record, Footer):
                trace.footer = record
            else:
                trace.iterations.append(record)
        if trace is None:
            raise TraceError("no records: a trace has at least a header")
        return trace


class TraceError(ValueError):
    """A file that is not a trace, or a line that cannot be read; the message names the line."""


# --- writing ---------------------------------------------------------------------------------------------

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
    file opens all the same.
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
        self._file.write(to_json(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
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


# --- reading ---------------------------------------------------------------------------------------------

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
            record = from_plain(_strict_json(line))
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


def _strict_json(line: str) -> Any:
    def refuse(word: str) -> None:
        raise TraceError(f"{word} is not valid JSON")

    try:
        return json.loads(line, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise TraceError(f"not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise TraceError("nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise TraceError(str(error)) from None


def from_plain(data: Any) -> Record | None:
    """The record of a plain dict, every field checked; None for a kind that a newer schema added."""
    if not isinstance(data, dict):
        raise TraceError(f"a record is a JSON object, not {type(data).__name__}")
    kind = data.get("kind")
    if kind == "header":
        return _header(data)
    if kind == "iteration":
        return _iteration(data)
    if kind == "footer":
        return _footer(data)
    if isinstance(kind, str):
        return None
    raise TraceError("no \"kind\"")


_REQUIRED = object()


def _get(data: dict, key: str, check, default: Any = _REQUIRED) -> Any:
    if key not in data or (data[key] is None and default is not _REQUIRED):
        if default is _REQUIRED:
            raise TraceError(f"\"{key}\" is missing")
        return default
    try:
        return check(data[key])
    except (TypeError, ValueError) as error:
        raise TraceError(f"\"{key}\": {error}") from None


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"a whole number is needed, not {value!r:.40}")
    if not 0 <= value < 2**53:
        raise ValueError("out of range")
    return value


def _seed(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**64:
        raise ValueError("a whole number is needed")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"a number is needed, not {value!r:.40}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("out of range") from None
    if not math.isfinite(number) or number < 0:
        raise ValueError("out of range")
    return number


def _probability(value: Any) -> float:
    number = _number(value)
    if number > 1.0 + 1e-6:
        raise ValueError("a probability lies between 0 and 1")
    return number


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"text is needed, not {value!r:.40}")
    return value


def _dict(value: Any) -> dict:
    if not isinstance(value, dict):
        raise ValueError("an object is needed")
    return value


def _list(check):
    def of(value: Any) -> tuple:
        if not isinstance(value, list):
            raise ValueError("a list is needed")
        return tuple(check(item) for item in value)

    return of


def _one_of(words: tuple[str, ...]):
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)} is needed, not {value!r:.40}")
        return value

    return check


def _header(data: dict) -> Header:
    schema = _get(data, "schema", _int)
    if schema > SCHEMA:
        raise TraceError(f"schema {schema} is newer than this program's {SCHEMA}: update specviz to open it")
    return Header(
        method=_get(data, "method", _dict),
        target=_get(data, "target", _dict),
        draft=_get(data, "draft", _dict, None),
        prompt=_get(data, "prompt", _str),
        prompt_ids=_get(data, "prompt_ids", _list(_int)),
        limit=_get(data, "limit", _int),
        sampling=_get(data, "sampling", _dict, {}),
        seed=_get(data, "seed", _seed, None),
        prompt_pieces=_get(data, "prompt_pieces", _list(_str), ()),
        versions=_get(data, "versions", _dict, {}),
        command=_get(data, "command", _str, None),
        schema=schema,
    )


def _alternative(value: Any) -> Alternative:
    value = _dict(value)
    return Alternative(_get(value, "id", _int), _get(value, "text", _str), _get(value, "probability", _probability))


def _draft_token(value: Any) -> DraftToken:
    value = _dict(value)
    return DraftToken(
        id=_get(value, "id", _int),
        text=_get(value, "text", _str),
        confidence=_get(value, "confidence", _probability),
        entropy=_get(value, "entropy", _number, None),
        alternatives=_get(value, "alternatives", _list(_alternative), ()),
        target_probability=_get(value, "target_probability", _probability, None),
    )


def _target_token(value: Any) -> TargetToken:
    value = _dict(value)
    return TargetToken(
        id=_get(value, "id", _int),
        text=_get(value, "text", _str),
        kind=_get(value, "kind", _one_of(("correction", "bonus"))),
        probability=_get(value, "probability", _probability, None),
        alternatives=_get(value, "alternatives", _list(_alternative), ()),
    )


def _iteration(data: dict) -> Iteration:
    draft = _get(data, "draft", _list(_draft_token))
    accepted = _get(data, "accepted", _int)
    if accepted > len(draft):
        raise TraceError(f"\"accepted\" is {accepted} of {len(draft)} drafted tokens")
    return Iteration(
        index=_get(data, "index", _int),
        start=_get(data, "start", _int),
        draft=draft,
        stop=_get(data, "stop", _one_of(STOP_REASONS)),
        accepted=accepted,
        ending=_get(data, "ending", _target_token, None),
        policy=_get(data, "policy", _dict, {}),
        draft_seconds=_get(data, "draft_seconds", _number, 0.0),
        verify_seconds=_get(data, "verify_seconds", _number, 0.0),
    )


def _footer(data: dict) -> Footer:
    return Footer(
        end=_get(data, "end", _one_of(ENDS)),
        tokens=_get(data, "tokens", _int),
        iterations=_get(data, "iterations", _int),
        drafted=_get(data, "drafted", _int),
        accepted=_get(data, "accepted", _int),
        seconds=_get(data, "seconds", _number),
        prefill_seconds=_get(data, "prefill_seconds", _number),
        tail=_get(data, "tail", _str, ""),
        setup=_get(data, "setup", _dict, {}),
    )
