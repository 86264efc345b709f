"""Carry out a run: drive its work, apply what it says, end it when it must end, and leave one line in the log."""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import torch

from specviz.errors import UsageError
from specviz.ui import zerogpu
from specviz.ui.limits import LIMITS, Limits
from specviz.ui.requests import field_of, to_plain
from specviz.ui.runs import Run, Stopped
from specviz.ui.said import said
from specviz.ui.shelf import Abandoned, Shelf, free_memory
from specviz.ui.study import Study
from specviz.ui.texts import text
from specviz.ui.work import WORK, Message

log = logging.getLogger("specviz")


class Failed(Exception):
    """Work in another process failed; the message is for the visitor."""


def perform(run: Run, shelf: Shelf, limits: Limits = LIMITS) -> Iterator[None]:
    """Carry out a run. Every way out leaves the run in one of its ended states."""
    lang, began, running = getattr(run.request, "lang", "en"), time.monotonic(), None
    try:
        with closing(_messages(run, shelf)) as messages:
            for message in messages:
                _apply(run, message)
                if run.stopping(limits):
                    raise Stopped
                if running is None and run.state == "running":
                    running = time.monotonic()
                if running and time.monotonic() - running > limits.run_seconds:
                    raise Failed(text("error.time", lang, limit=f"{limits.run_seconds:g}"))
                yield
        _end(run, "done")
    except (Stopped, Abandoned, GeneratorExit) as why:
        _end(run, "stopped")
        if isinstance(why, GeneratorExit):
            raise
    except Failed as why:
        _end(run, "failed", str(why))
    except Exception as error:
        message, field = _explained(error, lang)
        _end(run, "failed", message, field or ("pair" if run.state == "loading" else None))
        if no_memory(error):
            _let_go(error)
            shelf.clear()
    finally:
        if not run.ended:  # an exit that is no Exception, such as the interpreter's own
            _end(run, "stopped")
        log.info(summary(run, time.monotonic() - began))


def _messages(run: Run, shelf: Shelf) -> Iterator[Message | None]:
    """The work's messages, from this process or, on ZeroGPU, from the one that has the GPU."""
    if zerogpu.here():
        return zerogpu.messages(run.kind, to_plain(run.request))
    return WORK[run.kind](run.request, shelf, run.report)


def _apply(run: Run, message: Message | None) -> None:
    if message is None:
        return
    name, value = message
    if name == "line":
        run.lines.append(value)
    elif name == "result":
        run.result = Study.unpack(value)
    elif name == "failed":
        run.failure = value
        raise Failed(value["message"])
    elif name in ("state", "check", "progress"):
        setattr(run, name, value)


def _end(run: Run, state: str, message: str | None = None, field: str | None = None) -> None:
    if message is not None and run.failure is None:
        run.failure = {"message": message, "field": field}
    run.state = state  # last: a page that sees it asks no more


def explain(error: Exception, lang: str) -> dict[str, Any]:
    """What a visitor is told of an error: its message, and the control that it is about."""
    message, field = _explained(error, lang)
    return {"message": message, "field": field}


def _explained(error: Exception, lang: str) -> tuple[str, str | None]:
    if no_memory(error):
        return text("error.memory", lang), None
    if isinstance(error, UsageError):
        return said(str(error), lang), getattr(error, "field", None) or field_of(error)
    log.exception("a run failed")
    return text("error.internal", lang), None


def no_memory(error: BaseException | None) -> bool:
    """Is an error, or what caused it, a want of memory? torch says so on a CPU with a plain RuntimeError."""
    while error is not None:
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            return True
        words = str(error)
        if isinstance(error, (RuntimeError, OSError)) and (
            "allocate memory" in words or "enough memory" in words or "out of memory" in words or "start new thread" in words
        ):
            return True
        error = error.__cause__
    return False


def _let_go(error: BaseException | None) -> None:
    """The frames of a traceback hold the tensors that took the memory."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
    free_memory()


# --- the line in the log -----------------------------------------------------------------------------------

def summary(run: Run, seconds: float) -> str:
    """One line: method, tokens, seconds, acceptance. No text of the visitor, unless SPECVIZ_LOG_PROMPTS=1."""
    request = run.request
    tokens = drafted = accepted = 0
    for line in run.lines:
        record = json.loads(line)
        if record["kind"] == "iteration":
            guessed = len(record.get("draft", ()))
            drafted += guessed
            accepted += record["accepted"]
            tokens += record["accepted"] + ("ending" in record)
    methods = [one.method.name for one in getattr(request, "runs", (request,)) if hasattr(one, "method")]
    parts = [
        f"run {run.kind}",
        f"state={run.state}",
        f"method={'+'.join(methods) or getattr(request, 'drafter', '-')}",
        f"tokens={tokens}",
        f"seconds={seconds:.2f}",
        f"acceptance={accepted / drafted:.3f}" if drafted else "acceptance=-",
    ]
    if run.check:
        parts.append(f"check={run.check['kind']}")
    if os.environ.get("SPECVIZ_LOG_PROMPTS") == "1":
        first = getattr(request, "runs", (request,))[0]
        parts.append(f"prompt={getattr(first, 'prompt', '')!r}")
    return " ".join(parts)
