"""Threads of its own for everything that computes with models, as many as runs go on at once.

torch keeps a team of helpers for each thread that ever computed, and a web server hands every call to another thread.
Two teams on a machine's cores wait for each other at every operation: a small model then runs at a tenth of its speed.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import torch

from specviz.models.cores import usable_cores
from specviz.models.loading import LoadedModel
from specviz.ui.limits import public


class Hands:
    """Carries out generators, each in one thread from its first step to its last."""

    def __init__(self, count: int):
        self._free: queue.SimpleQueue[_Hand] = queue.SimpleQueue()
        for _ in range(count):
            self._free.put(_Hand())

    def carry(self, steps: Iterator[Any], breath: float) -> Iterator[None]:
        """The steps, done elsewhere; comes up for air every `breath` seconds, and ends them when it is closed."""
        hand = self._free.get()
        try:
            while hand.do(lambda: _some(steps, breath)):
                yield
        finally:
            hand.do(steps.close)
            self._free.put(hand)


def _some(steps: Iterator[Any], breath: float) -> bool:
    """Go on for a while. False at the end."""
    until = time.monotonic() + breath
    return any(time.monotonic() > until for _ in steps)


class _Hand:
    """A thread that does one thing after another; it never holds up the end of the process."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future]] = queue.SimpleQueue()
        threading.Thread(target=self._live, daemon=True, name="models").start()

    def do(self, what: Callable[[], Any]) -> Any:
        answer: Future = Future()
        self._asked.put((what, answer))
        return answer.result()

    def _live(self) -> None:
        while True:
            what, answer = self._asked.get()
            try:
                answer.set_result(what())
            except BaseException as error:  # it belongs to whoever asked
                answer.set_exception(error)
            del what, answer  # a run's models must not stay in memory until the next one


def shared_with_browser(*models: LoadedModel | None) -> bool:
    """Does the visitor's browser, drawing a run, take time from the models? So where it probably is on this machine and they
    compute on all of its cores. Asked by the thread that computes."""
    here = [loaded for loaded in models if loaded is not None]
    on_cores = any(loaded.device.type == "cpu" for loaded in here)
    return on_cores and not public() and torch.get_num_threads() >= usable_cores()
