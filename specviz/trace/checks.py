"""From a line of a file to a record, every field checked: nothing of a file is believed."""

from __future__ import annotations

import json
import math
from typing import Any

from specviz.trace.records import (
    ENDS,
    SCHEMA,
    STOP_REASONS,
    Alternative,
    DraftToken,
    Footer,
    Header,
    Iteration,
    Record,
    TargetToken,
    TraceError,
)


def strict_json(line: str) -> Any:
    """Parse one line; TraceError for what strict JSON does not allow."""
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
