"""Work on models is done in threads of its own, one for a run from its first step to its last."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from specviz.ui.hands import Hands


def steps(seen: list, count: int = 5):
    try:
        for _ in range(count):
            seen.append(threading.get_ident())
            yield
    finally:
        seen.append(("closed", threading.get_ident()))


def test_all_steps_of_all_runs_are_done_in_one_thread_whoever_asks():
    hands, seen = Hands(1), []
    carried = hands.carry(steps(seen), 0.0)
    with ThreadPoolExecutor(3) as pool:  # a web server asks from any thread
        while pool.submit(next, carried, "end").result() != "end":
            pass
    for _ in hands.carry(steps(seen), 0.0):
        pass
    threads = {one[1] if isinstance(one, tuple) else one for one in seen}
    assert len(seen) == 12 and len(threads) == 1
    assert threading.get_ident() not in threads


def test_who_leaves_early_ends_the_work_and_frees_the_thread():
    hands, seen = Hands(1), []
    carried = hands.carry(steps(seen, 10**9), 0.0)
    next(carried)
    carried.close()
    assert seen[-1][0] == "closed"
    assert list(hands.carry(steps(seen), 60.0)) == []


def test_an_error_reaches_who_asked_and_frees_the_thread():
    def broken():
        yield
        raise ValueError("so")

    hands = Hands(1)
    with pytest.raises(ValueError, match="so"):
        list(hands.carry(broken(), 0.0))
    assert list(hands.carry(iter_once(), 60.0)) == []


def iter_once():
    yield
