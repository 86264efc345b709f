"""The comparison with the target alone: in turns where the browser shares the cores, and of the recorded runs too."""

from __future__ import annotations

import json
import re

import pytest
import torch

from specviz.trace import read_trace
from specviz.ui import hands, recorded, work
from specviz.ui.requests import decode_request
from specviz.ui.shelf import Shelf
from tests.tiny import tiny_model
from tests.ui.helpers import run


def asked(method: str, pair: str = "tiny", **more):
    return decode_request({"pair": pair, "method": method, "prompt": "def is_even(number):", "limit": 60, **more})


def messages(request, shelf: Shelf) -> list:
    return [message for message in work.decode_work(request, shelf, None) if message]


@pytest.fixture(scope="module")
def shelf():
    return Shelf()


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.setattr(work, "shared_with_browser", lambda *_: True)


@pytest.mark.parametrize(
    ("method", "pair"),
    [("constant", "tiny"), ("dynamic", "tiny"), ("prompt-lookup", "tiny"), ("early-exit-dynamic", "tiny-exit"), ("oracle", "tiny")],
)
def test_a_run_is_timed_again_in_turns_with_the_target_alone(method, pair, shelf, shared, monkeypatch):
    order = []
    whole = work._decoded

    def noted(request, *models):
        for record in whole(request, *models):
            order.append((request.method.name, record.kind))
            yield record

    monkeypatch.setattr(work, "_decoded", noted)
    found = messages(asked(method, pair), shelf)
    check = found[-1][1]
    assert check["kind"] == "identical" and check["tokens"] == 60 == check["plain_tokens"]
    assert check["watched_speedup"] > 0 and check["speedup"] == pytest.approx(check["account"]["speedup"])
    parts = check["account"]
    assert parts["drafting"] + parts["verifying"] + parts["other"] == pytest.approx(parts["cost"])
    # Behind the watched run: the target's first turn, then the method's, and so on, and both to their end.
    checking = order[len(order) - 1 - order[::-1].index(("autoregressive", "header")) :]
    names = [name for index, (name, _) in enumerate(checking) if not index or checking[index - 1][0] != name]
    assert names[:4] == ["autoregressive", method] * 2
    assert [name for name, kind in checking if kind == "footer"].count(method) == 1
    watched = [json.loads(text) for kind, text in found if kind == "line"]
    assert watched[-1]["tokens"] == 60


def test_where_the_browser_has_other_cores_a_run_is_decoded_once(shelf, monkeypatch):
    monkeypatch.setattr(work, "shared_with_browser", lambda *_: False)
    check = messages(asked("dynamic"), shelf)[-1][1]
    assert check["kind"] == "identical" and check["watched_speedup"] is None and check["account"]["speedup"] == check["speedup"]


def test_the_target_alone_has_no_account(shelf, shared):
    check = messages(asked("autoregressive"), shelf)[-1][1]
    assert check["kind"] == "identical" and check["account"] is None and check["speedup"] == 1.0


def test_a_run_that_is_stopped_while_it_is_timed_leaves_no_cache(shelf, shared):
    steps = work.decode_work(asked("constant"), shelf, None)
    for message in steps:
        if message == ("state", "checking"):
            break
    for _ in range(30):
        next(steps)
    frame = steps.gi_yieldfrom  # the two runs of the comparison
    steps.close()
    assert frame.gi_frame is None


def test_only_a_private_page_on_all_cores_shares_them(monkeypatch):
    loaded = tiny_model("llama")
    monkeypatch.delenv("SPACE_ID", raising=False)
    monkeypatch.setenv("SPECVIZ_PUBLIC", "0")
    threads = torch.get_num_threads()
    for cores, public, wanted in ((threads, "0", True), (threads + 1, "0", False), (threads, "1", False)):
        monkeypatch.setattr(hands, "usable_cores", lambda cores=cores: cores)
        monkeypatch.setenv("SPECVIZ_PUBLIC", public)
        assert hands.shared_with_browser(loaded, None) is wanted


@pytest.mark.parametrize("path", sorted(recorded.TRACES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_recorded_runs_were_compared_with_the_target_alone(path):
    ours, plain = read_trace(path), read_trace(recorded.PLAIN / path.name)
    assert plain.header.method["name"] == "autoregressive"
    assert plain.header.prompt_ids == ours.header.prompt_ids and plain.header.target == ours.header.target
    (entry,) = [one for one in recorded.catalogue() if one["file"] == path.name]
    assert entry["check"]["kind"] == "identical" and entry["check"]["recorded"]
    assert entry["check"]["account"]["added"] > 1


def test_the_account_is_shown_for_live_and_for_recorded_runs(visit):
    page = visit("?pair=tiny&method=dynamic&limit=96")
    run(page)
    text = page.inner_text(".sv-account p")
    added, cost, speed = (float(one) for one in re.search(r"([\d.]+) ÷ ([\d.]+) = ([\d.]+) times", text).groups())
    assert speed == pytest.approx(added / cost, rel=0.05)
    assert page.locator(".sv-account-bar span").count() == 5
    page.evaluate("window.specviz.app.openRecorded('smollm2-draft-leaves.jsonl')")
    page.wait_for_function("/recorded/.test(document.querySelector('.sv-account').textContent)")
    assert "Identical" in page.inner_text(".sv-verdict")


@pytest.mark.parametrize(("speedup", "shown"), [("1", "1.0\u00d7"), ("0.98765", "0.99\u00d7"), ("null", "\u2013\u00d7")])
def test_a_speed_up_is_a_number_for_a_reader_whatever_it_is(visit, speedup, shown):
    page = visit("?pair=tiny")
    page.evaluate(f"window.specviz.app.view('watch').stage.finished({{check: {{kind: 'identical', tokens: 3, plain_tokens: 3, speedup: {speedup}}}}})")
    assert shown in page.inner_text(".sv-verdict")
