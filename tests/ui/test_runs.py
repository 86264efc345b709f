"""Buffers of runs, and what a request must look like: without a browser."""

from __future__ import annotations

import json
import random

import pytest

from specviz.ui.limits import Limits
from specviz.ui.requests import Refused, clean, decode_request, probe_request, race_request
from specviz.ui.runs import MOST_AT_ONCE, Run, Runs
from tests.ui import handmade

GOOD = {"pair": "tiny", "method": "dynamic", "prompt": "x", "lookahead": 5, "threshold": 0.5, "limit": 10}


def test_a_page_reads_behind_its_cursor_until_nothing_is_left():
    run = Run("decode", None)
    trace = handmade.trace(iterations=MOST_AT_ONCE + 20)
    for record in (trace.header, *trace.iterations, trace.footer):
        run.add(record)
    first = run.answer(0, 0)
    assert (first["cursor"], first["more"]) == (MOST_AT_ONCE, True)
    rest = run.answer(first["cursor"], 0)
    assert not rest["more"]
    kinds = [record["kind"] for record in json.loads(first["records"]) + json.loads(rest["records"])]
    assert kinds == ["header", *["iteration"] * (MOST_AT_ONCE + 20), "footer"]
    assert json.loads(run.answer(10_000, 0)["records"]) == []


def test_runs_wait_in_order_and_too_many_are_refused():
    runs = Runs(Limits(waiting=2))
    first, second, third = (runs.submit("decode", None) for _ in range(3))
    assert [runs.before(run) for run in (first, second, third)] == [0, 1, 2]
    assert runs.submit("decode", None) is None
    first.state = "done"
    assert [runs.before(run) for run in (second, third)] == [0, 1]
    assert runs.submit("decode", None) is not None


def test_a_run_is_taken_once_and_a_foreign_name_finds_nothing():
    runs = Runs()
    run = runs.submit("decode", None)
    assert len(run.id) == 32
    assert runs.claim(run.id) is run
    assert runs.claim(run.id) is None
    for name in ("", None, 5, [], {}, run.id[:-1]):
        assert runs.get(name) is None and runs.claim(name) is None


def test_what_nobody_reads_is_stopped_and_forgotten():
    runs = Runs(Limits(abandoned_seconds=0.0, keep_seconds=10.0))
    waiting, done = runs.submit("decode", None), runs.finished("upload", [])
    assert waiting.stopping(runs.limits)
    runs.expire()
    assert waiting.state == "stopped"
    runs.expire(now=lambda: done.touched + 11)
    assert runs.get(done.id) is None


def test_oldest_ended_runs_make_room():
    runs = Runs(Limits(runs_kept=3))
    made = [runs.finished("upload", []) for _ in range(5)]
    assert [runs.get(run.id) is not None for run in made] == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"pair": "no-such"}, "pair"),
        ({"method": "magic"}, "method"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "x" * 9000}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"lookahead": 65}, "lookahead"),
        ({"lookahead": 2.5}, "lookahead"),
        ({"lookahead": "5"}, "lookahead"),
        ({"threshold": 1.5}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"limit": 0}, "limit"),
        ({"limit": 10**30}, "limit"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 1, "top_p": 0}, "top_p"),
        ({"temperature": 1, "top_k": True}, "top_k"),
    ],
)
@pytest.mark.parametrize("lang", ["en", "ja"])
def test_a_wrong_value_is_refused_with_its_field(change, field, lang):
    with pytest.raises(Refused) as refusal:
        decode_request(GOOD | change, lang)
    assert refusal.value.field == field
    assert str(refusal.value).isascii() == (lang == "en")


def test_what_does_not_apply_is_left_out():
    request = decode_request(GOOD | {"method": "autoregressive", "ngram": 3})
    assert request.method.as_dict() == {"name": "autoregressive"}


def test_nonsense_is_refused_and_never_breaks():
    rng = random.Random(1)
    junk = [None, True, -1, 0, 1e308, float("inf"), "", "\ud800", "x" * 100_000, [], {}, [[[]]], {"a": {}}, 10**400]
    for _ in range(400):
        data = dict(GOOD)
        for _ in range(rng.randint(1, 4)):
            data[rng.choice([*GOOD, "methods", "drafter", "chat"])] = rng.choice(junk)
        for read in (decode_request, probe_request, race_request):
            try:
                read(rng.choice([data, junk[rng.randrange(len(junk))]]), rng.choice(["en", "ja", None, 3]))
            except Refused as error:
                assert str(error)


def test_half_characters_are_replaced():
    assert clean("a\ud83db") == "a\ufffdb"
    assert clean("🙂") == "🙂"


def test_a_page_that_ends_takes_no_more_runs_and_stops_the_others():
    runs = Runs()
    working, waiting, done = runs.submit("decode", None, claimed=True), runs.submit("decode", None), runs.finished("upload", [])
    assert runs.close() == [working]
    assert working.stopping() and waiting.state == "stopped" and done.state == "done"
    assert runs.submit("decode", None) is None
    runs.forget(working)
    assert runs.get(working.id) is None


def test_oldest_records_make_room_when_they_are_large():
    runs = Runs(Limits(kept_bytes=25_000))
    trace = handmade.trace(iterations=20)
    made = [runs.finished("upload", [trace.header, *trace.iterations, trace.footer]) for _ in range(6)]
    kept = [runs.get(run.id) is not None for run in made]
    assert kept[-1] and not kept[0] and kept == sorted(kept)
    assert sum(run.size() for run, there in zip(made, kept, strict=True) if there) <= 25_000 or sum(kept) == 1


def test_what_was_forgotten_for_its_size_is_not_counted_again():
    trace = handmade.trace(iterations=20)
    records = [trace.header, *trace.iterations, trace.footer]
    one = Runs(Limits()).finished("upload", records).size()
    runs = Runs(Limits(kept_bytes=3 * one + 1, runs_kept=100))
    made = [runs.finished("upload", records) for _ in range(3)]
    runs.limits = Limits(kept_bytes=2 * one + 1, runs_kept=2)  # both limits are passed by one run
    runs.expire()
    assert [runs.get(run.id) is not None for run in made] == [False, True, True]
