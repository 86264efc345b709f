"""Requests that go round the page: refused in a sentence, at once, and the next good one is answered."""

from __future__ import annotations

import random
import re
import time

import httpx
import pytest

from specviz.ui.guard import MOST_DEPTH, Unfit, check_json
from tests.hosting import fuzz
from tests.hosting.server import Server, text_of


@pytest.fixture(scope="module")
def server():
    with Server(SPECVIZ_PUBLIC="1") as running:
        yield running


def test_bodies_are_strict_json_of_limited_depth_and_size():
    assert check_json(b'{"a": [1, 2.5, "' + b"[" * 1000 + b'"]}')["a"][1] == 2.5
    for body in (b"", b"{", b"NaN", b'{"a": Infinity}', b"[" * (MOST_DEPTH + 1) + b"]" * (MOST_DEPTH + 1), b"1" * 500, b"\xff", b'"\x00"', b"[1]" * 100_000):
        with pytest.raises(Unfit):
            check_json(body)


def refused(answer: httpx.Response) -> str:
    """The words of a refusal; AssertionError where the request was obeyed, or broke the server."""
    said = answer.text
    if answer.status_code == 200:
        assert '"error"' in said, f"obeyed: {said[:300]}"
        said = answer.json()["error"]["message"]
    else:
        assert 400 <= answer.status_code < 500, (answer.status_code, said[:300])
    assert said and "Traceback" not in said and "/work" not in said
    return said


def harmless(path: str, answer: httpx.Response) -> bool:
    """Some mutations leave a request that means something: nothing to stop, nothing to read."""
    return answer.status_code == 200 and answer.text in ("{}", "null")


def gibberish_that_gradio_takes(path: str, answer: httpx.Response) -> bool:
    """A place in the queue for a run that does not exist: nothing comes of it."""
    return path.endswith("/queue/join") and answer.status_code == 200 and "event_id" in answer.text


def batter(server: Server, count: int, seed: int) -> list[float]:
    """Send malformed requests; returns the seconds of each."""
    rng, took = random.Random(seed), []
    visitor = server.visitor()
    for _ in range(count):
        path, kind, body = fuzz.bodies(rng, visitor.component, visitor.event)
        began = time.monotonic()
        answer = httpx.post(server.url + path, content=body, headers={"content-type": kind}, timeout=180)
        took.append(time.monotonic() - began)
        if not harmless(path, answer) and not gibberish_that_gradio_takes(path, answer):
            refused(answer)
    visitor.close()
    return took


def good(server: Server) -> None:
    visitor = server.visitor()
    run = visitor.start("decode", fuzz.GOOD)
    assert run.wait()["check"]["kind"] == "identical"
    assert text_of(run.records)
    visitor.close()


def test_a_few_malformed_requests_are_refused_and_a_good_one_is_answered(server):
    batter(server, 40, seed=7)
    good(server)


@pytest.mark.slow
def test_two_hundred_malformed_requests(server):
    took = batter(server, 200, seed=1)
    print(f"\n200 malformed requests: median {sorted(took)[100] * 1000:.0f} ms, longest {max(took) * 1000:.0f} ms")
    good(server)
    assert not [line for line in server.log if "Traceback" in line]


@pytest.mark.parametrize("path", fuzz.PATHS)
def test_no_file_is_read_through_the_page(server, path):
    # The client would tidy a path; this way it goes out as it is.
    answer = httpx.Client().send(httpx.Request("GET", httpx.URL(server.url).copy_with(raw_path=path.encode())))
    assert answer.status_code in (400, 403, 404, 405), (path, answer.status_code, answer.text[:200])
    for words in ("root:", "from specviz", "model_type", "# "):
        assert words not in answer.text


def test_gradio_serves_no_folder_of_ours():
    from pathlib import Path

    from specviz.ui import page

    assert "allowed_paths=[]" in Path(page.__file__).read_text(encoding="utf-8")


def test_strangers_cannot_name_a_model_by_any_way(server):
    from gradio_client import Client

    visitor = server.visitor()
    for name in ("owner/name", "/etc", "./assets/models/tiny-plain"):
        for kind, request in (("decode", {**fuzz.GOOD, "pair": name}), ("probe", {**fuzz.GOOD, "pair": name})):
            assert visitor.ask("submit", {"kind": kind, "request": request})["error"]["field"] == "pair"
        race = {**fuzz.GOOD, "pair": name, "methods": ["constant"]}
        assert visitor.ask("submit", {"kind": "race", "request": race})["error"]["field"] == "pair"
        assert visitor.ask("typed", {"pair": name})["error"]["field"] == "pair"
        for endpoint in ("/decode", "/probe", "/sweep"):
            joined = visitor.post("/call/v2" + endpoint, {"prompt": "x", "pair": name})
            events = httpx.get(f"{server.url}/gradio_api/call{endpoint}/{joined.json()['event_id']}", timeout=180).text
            assert "event: error" in events and "only models of its list" in events
    client = Client(server.url, verbose=False)
    with pytest.raises(Exception, match="only models of its list"):
        client.predict(prompt="x", pair="owner/name", api_name="/decode")
    client.close()
    visitor.close()
    assert re.search(r"typed\W{1,5}false", httpx.get(server.url).text)


def test_wrong_types_are_refused_by_the_endpoints_too(server):
    from gradio_client import Client

    client = Client(server.url, verbose=False)
    for wrong in ({"limit": "many"}, {"limit": 10**12}, {"prompt": ["x"]}, {"prompt": "x" * 9000}, {"lookahead": {}}, {"temperature": -1}):
        with pytest.raises(ValueError, match="number|choose|text|characters"):
            client.predict(**{"prompt": "x", "pair": "tiny"} | wrong, api_name="/decode")
    for wrong in ({"lookaheads": [1] * 5000}, {"lookaheads": "x"}, {"thresholds": [2]}, {"policy": "x"}, {"lookaheads": 5}):
        with pytest.raises(ValueError, match="combinations|number|[Cc]hoose"):
            client.predict(**{"prompt": "x", "pair": "tiny"} | wrong, api_name="/sweep")
    client.close()
