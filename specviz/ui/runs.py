"""Runs of visitors: buffers of records that a page reads behind its own cursor.

The name of a run is the only key to it: 128 random bits, known to the page that asked for the run and to nobody
else. A run that no page asks for any more is stopped, and forgotten after a while.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from specviz.trace import Record, to_json
from specviz.ui.limits import LIMITS, Limits

STATES = ("waiting", "loading", "running", "checking", "done", "stopped", "failed")
ENDED = ("done", "stopped", "failed")

# Records that one answer carries at most: a page that lags behind catches up in several answers.
MOST_AT_ONCE = 400


WAITING_PAGES_ASK = 70.0  # seconds; browsers let a hidden page ask once a minute


class Stopped(Exception):
    """Raised inside a run's work when nobody wants it any more."""


@dataclass
class Run:
    """One piece of work for the models, and what came of it so far."""

    kind: str
    request: Any
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    state: str = "waiting"
    lines: list[str] = field(default_factory=list)  # records as JSON
    progress: dict[str, Any] | None = None
    check: dict[str, Any] | None = None
    result: Any = None  # what other work than decoding leaves: a probe, for instance
    failure: dict[str, Any] | None = None
    touched: float = field(default_factory=time.monotonic)
    claimed: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)
    _size: int | None = None

    def add(self, record: Record) -> None:
        self.lines.append(to_json(record))

    def stop(self) -> None:
        self._stop.set()

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def size(self) -> int:
        """Bytes of its records, nearly."""
        if not self.ended:
            return 0
        if self._size is None:
            self._size = sum(map(len, self.lines))
        return self._size

    def stopping(self, limits: Limits = LIMITS) -> bool:
        """Is this run to end now: because it was told to, or because its page is gone?"""
        return self._stop.is_set() or time.monotonic() - self.touched > limits.abandoned_seconds

    def report(self, stage: str, done: float, total: float | None, unit: str) -> None:
        """Progress of loading; also the moment at which a stop is noticed while nothing is decoded."""
        self.progress = {"stage": stage, "done": done, "total": total, "unit": unit}
        if self.stopping():
            raise Stopped

    def answer(self, cursor: int, waiting: int) -> dict[str, Any]:
        """What a page learns that has read `cursor` records."""
        self.touched = time.monotonic()
        state = self.state  # read before the lines: an ended run has all of its lines
        lines = self.lines[cursor : cursor + MOST_AT_ONCE]
        after = cursor + len(lines)
        return {
            "records": "[" + ",".join(lines) + "]",
            "cursor": after,
            "more": after < len(self.lines),
            "state": state,
            "waiting": waiting,
            "progress": self.progress,
            "check": self.check,
            "failure": self.failure,
        }


class Runs:
    """All runs of this process. Safe to use from several threads."""

    def __init__(self, limits: Limits = LIMITS):
        self.limits = limits
        self.closed = False
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    def _unended(self) -> int:
        return sum(not run.ended for run in self._runs.values())

    def close(self) -> list[Run]:
        """Take no more runs and stop those that have begun, which are returned; the others end at once."""
        with self._lock:
            self.closed = True
            going = [run for run in self._runs.values() if not run.ended]
            for run in going:
                run.stop()
                if not run.claimed:
                    run.state = "stopped"
        return [run for run in going if run.claimed]

    def submit(self, kind: str, request: Any, claimed: bool = False) -> Run | None:
        """A new run that waits for the models; None where too many wait already.

        claimed: it is begun at once by the caller, a program that has waited in Gradio's queue.
        """
        self.expire()
        run = Run(kind, request, claimed=claimed)
        with self._lock:
            if self.closed or self._unended() >= self.limits.waiting + self.limits.runs_at_once:
                return None
            self._runs[run.id] = run
        return run

    def finished(self, kind: str, records: Iterable[Record]) -> Run:
        """A run that is complete from the start, such as an opened file."""
        run = Run(kind, None, state="done")
        for record in records:
            run.add(record)
        with self._lock:
            self._runs[run.id] = run
        self.expire()
        return run

    def forget(self, run: Run) -> None:
        with self._lock:
            self._runs.pop(run.id, None)

    def get(self, name: object) -> Run | None:
        return self._runs.get(name) if isinstance(name, str) else None

    def claim(self, name: object) -> Run | None:
        """The run of that name, for the one event that works on it; None if there is none or it is taken."""
        with self._lock:
            run = self.get(name)
            if run is None or run.claimed or run.ended:
                return None
            run.claimed = True
            return run

    def before(self, run: Run) -> int:
        """How many runs come first."""
        if run.state != "waiting":
            return 0
        ahead, now = 0, time.monotonic()
        for other in list(self._runs.values()):
            if other is run:
                break
            # A page that closed while it waited asks no more, and its run will never begin.
            ahead += not other.ended and (other.claimed or now - other.touched < WAITING_PAGES_ASK)
        return ahead

    def expire(self, now: Callable[[], float] = time.monotonic) -> None:
        """Forget what nobody reads, oldest first when there is too much; give up what nobody came to start."""
        with self._lock:
            at, newest = now(), next(reversed(self._runs.values()), None)
            for run in self._runs.values():
                if run.state == "waiting" and not run.claimed and at - run.touched > self.limits.abandoned_seconds:
                    run.state = "stopped"
            size = 0
            for name, run in reversed(list(self._runs.items())):
                size += run.size()
                if size > self.limits.kept_bytes and run.ended and run is not newest:
                    del self._runs[name]
            for name, run in list(self._runs.items()):
                if run.ended and (at - run.touched > self.limits.keep_seconds or len(self._runs) > self.limits.runs_kept):
                    del self._runs[name]
