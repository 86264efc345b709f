"""ZeroGPU without one: what crosses to the process with the GPU and back is plain Python, and arrives as it is made."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from specviz.ui import zerogpu
from specviz.ui.perform import perform
from specviz.ui.requests import decode_request, from_plain, probe_request, race_request, to_plain
from specviz.ui.runs import Run
from specviz.ui.shelf import Shelf
from tests.tiny import tiny_pair

ROOT = Path(__file__).parents[2]
GOOD = {"pair": "tiny", "method": "dynamic", "prompt": "def add(a, b):", "limit": 12}
REQUESTS = {
    "decode": decode_request(GOOD | {"temperature": 0}),
    "race": race_request(GOOD | {"methods": ["constant", {"method": "dynamic", "threshold": 0.3}]}),
    "probe": probe_request(GOOD | {"drafter": "early-exit"}),
}


def plain(value) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool, bytes)


@pytest.fixture
def space(monkeypatch):
    """As on ZeroGPU, with a border at which everything is pickled; returns what crossed it."""
    shelf = Shelf()
    target, draft = tiny_pair("llama", eos_ids=())
    shelf.put("tiny-layerskip", target)
    shelf.put("tiny-draft", draft)
    shelf.fixed = True
    crossed = []

    def gpu(task):
        def asked(*arguments):
            assert plain(arguments), arguments
            for message in task(*pickle.loads(pickle.dumps(arguments))):
                assert plain(message), message
                crossed.append(message)
                yield pickle.loads(pickle.dumps(message))

        return asked

    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setattr(zerogpu, "_shelf", shelf)
    monkeypatch.setattr(zerogpu, "_decorated", gpu(zerogpu.on_gpu))
    return crossed


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_survives_the_border(kind):
    assert from_plain(kind, pickle.loads(pickle.dumps(to_plain(REQUESTS[kind])))) == REQUESTS[kind]
    assert plain(to_plain(REQUESTS[kind]))


@pytest.mark.parametrize("kind", REQUESTS)
def test_work_crosses_the_border_and_streams(space, kind):
    run = Run(kind, REQUESTS[kind])
    lines = []
    for _ in perform(run, Shelf()):
        lines.append((len(run.lines), len([message for message in space if message and message[0] == "line"])))
    assert run.state == "done", run.failure
    if kind == "probe":
        assert 0 < run.result.probe.length <= 12 and run.result.lens is not None
    else:
        assert run.check["kind"] in ("identical", "race.same")
        assert all(seen == made for seen, made in lines), "records came later than they were made"
        assert len({seen for seen, _ in lines}) > 3


def test_a_stop_reaches_the_other_side(space):
    run = Run("decode", decode_request(GOOD | {"limit": 200, "method": "autoregressive"}))
    for _ in perform(run, Shelf()):
        if len(run.lines) == 3:
            run.stop()
    assert run.state == "stopped" and len(run.lines) <= 4


def test_an_error_on_the_other_side_is_told_with_its_field(space):
    run = Run("decode", decode_request(GOOD | {"method": "early-exit", "exit_layer": 99}))
    for _ in perform(run, Shelf()):
        pass
    assert run.state == "failed" and run.failure["field"] == "exit_layer"
    run = Run("decode", decode_request(GOOD | {"pair": "smollm2"}))
    for _ in perform(run, Shelf()):
        pass
    assert "loaded at the start only" in run.failure["message"]


def test_no_quota_is_said_in_its_own_words(space, monkeypatch):
    import gradio as gr

    def refused(*_):
        raise gr.Error("You have exceeded your GPU quota")
        yield

    monkeypatch.setattr(zerogpu, "_decorated", refused)
    run = Run("decode", REQUESTS["decode"])
    for _ in perform(run, Shelf()):
        pass
    assert run.state == "failed" and "quota" in run.failure["message"]


def test_the_gpu_is_asked_for_as_long_as_the_request_needs():
    short = zerogpu.duration("decode", to_plain(decode_request(GOOD | {"limit": 8})))
    long = zerogpu.duration("decode", to_plain(decode_request(GOOD | {"limit": 512})))
    race = zerogpu.duration("race", to_plain(REQUESTS["race"]))
    probe = zerogpu.duration("probe", to_plain(REQUESTS["probe"]))
    assert 0 < short < long <= zerogpu.MOST_SECONDS
    assert all(isinstance(value, int) for value in (short, long, race, probe))


def test_the_package_is_not_needed_elsewhere():
    code = "import sys; sys.modules['spaces'] = None; import specviz.ui.page as page; page.build(); print('built')"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SPACES_")}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "built", done.stderr[-1000:]


EMULATED = """
import torch
from specviz.ui import page, zerogpu
demo = page.build()
shelf = demo.site.shelf
print(shelf.fixed, sorted(shelf.names()), {str(place.model.model.device) for place in shelf._places.values()})
print(zerogpu._decorated is not zerogpu.on_gpu and hasattr(zerogpu._decorated, "zerogpu"))
"""


@pytest.mark.skipif(torch.version.cuda is None, reason="needs a CUDA build of torch, though no GPU")
def test_with_the_real_package_models_go_to_the_gpu_before_the_page_opens():
    pytest.importorskip("spaces", reason="spaces is needed on ZeroGPU only: pip install spaces")
    environment = {**os.environ, "SPACES_ZERO_GPU": "true", "SPACES_ZERO_DEVICE_API_URL": "http://127.0.0.1:1"}
    done = subprocess.run([sys.executable, "-c", EMULATED], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    models, decorated = done.stdout.splitlines()[-2:]
    assert models.startswith("True ") and "tiny-layerskip" in models and "{'cuda:0'}" in models
    assert decorated == "True"
