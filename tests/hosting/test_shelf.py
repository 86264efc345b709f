"""Models in memory: loaded once, the least recently used goes first, never one in use."""

from __future__ import annotations

import threading

import pytest

from specviz.errors import UsageError
from specviz.ui.shelf import Shelf
from tests.tiny import tiny_model


class Loader:
    def __init__(self):
        self.loaded: list[str] = []

    def __call__(self, name, progress=None, **_):
        if progress:
            progress(f"loading {name}", 0, None, "seconds")
        if name == "broken":
            raise UsageError("broken: fetch it again")
        self.loaded.append(name)
        return tiny_model("llama")


def load(shelf, *names):
    lease = shelf.lent(*names)
    opened = lease.__enter__()
    for _ in opened.load():
        pass
    return lease


def test_the_least_recently_used_goes_first():
    shelf = Shelf(room=2, load=(loader := Loader()))
    for name in ("a", "b", "a", "c"):
        load(shelf, name).__exit__(None, None, None)
    assert shelf.names() == ["a", "c"]
    assert loader.loaded == ["a", "b", "c"]


def test_a_model_in_use_stays():
    shelf = Shelf(room=1, load=Loader())
    first = load(shelf, "a", "b")  # a pair is more than there is room for, and both are in use
    assert shelf.names() == ["a", "b"]
    second = load(shelf, "c")
    assert shelf.names() == ["a", "b", "c"]
    first.__exit__(None, None, None)
    third = load(shelf, "d")
    assert shelf.names() == ["c", "d"]
    second.__exit__(None, None, None)
    shelf.clear()
    assert shelf.names() == ["d"]
    third.__exit__(None, None, None)
    shelf.clear()
    assert shelf.names() == []


def test_many_threads_at_once_load_each_model_once_and_give_all_back():
    shelf = Shelf(room=2, load=(loader := Loader()))
    failed = []

    def visitor(number):
        try:
            for turn in range(20):
                lease = load(shelf, "ab"[(number + turn) % 2], None)
                lease.__exit__(None, None, None)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=visitor, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(loader.loaded) == ["a", "b"]
    shelf.room = 0
    shelf.clear()
    assert shelf.names() == []


def test_a_failed_load_holds_nothing_and_the_next_one_works():
    shelf = Shelf(room=3, load=Loader())
    with pytest.raises(UsageError, match="fetch it again"), shelf.lent("a", "broken") as lease:
        for _ in lease.load():
            pass
    load(shelf, "b").__exit__(None, None, None)
    shelf.clear()
    assert shelf.names() == []


def test_who_leaves_while_a_model_is_loaded_ends_the_loading():
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(name, progress=None, **_):
        begun.set()
        go.wait(60)
        try:
            progress("downloading", 1, 2, "bytes")
        finally:
            ended.set()
        return tiny_model("llama")

    shelf = Shelf(load=slow)
    with shelf.lent("a") as lease:
        steps = lease.load()
        next(steps)
        begun.wait(60)
        steps.close()
    go.set()
    assert ended.wait(60)
    assert shelf.names() == []
