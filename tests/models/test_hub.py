"""What the Hub's client really raises, made by a server of ours, and what a person is told."""

from __future__ import annotations

import socket

import pytest
from huggingface_hub import constants

from specviz.errors import UsageError
from specviz.models import hub, zoo
from specviz.models.loading import load_model
from tests.models.fakehub import Repo, fake_hub, folder_files

TITLE = "Adding `safetensors` variant of this model"


@pytest.fixture
def online(monkeypatch, hub_cache):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", str(hub_cache / "none"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(hub_cache / "none"))
    return monkeypatch


def refusal(repo: str, repos: dict, revision=None) -> str:
    with fake_hub(repos) as (address, _), pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", address)
        with pytest.raises(UsageError) as caught:
            hub.snapshot(repo, revision)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_model_is_downloaded_once_with_progress(online, saved):
    files = folder_files(saved) | {"modeling_own.py": b"raise SystemExit", "pytorch_model.bin": b"pickle"}
    told = []
    with fake_hub({"EleutherAI/pythia-70m-deduped": Repo(files)}) as (address, seen):
        online.setenv("HF_ENDPOINT", address)
        assert not zoo.MODELS["pythia-70m"].here
        loaded = load_model("pythia-70m", device="cpu", progress=lambda *words: told.append(words))
        requests = len(seen)
        assert load_model("pythia-70m", device="cpu").revision == loaded.revision
        assert len(seen) == requests, "the second time needs no request"
    assert zoo.MODELS["pythia-70m"].here and len(loaded.revision) == 40
    bytes_told = [words for words in told if words[3] == "bytes"]
    assert bytes_told and bytes_told[-1][1] == bytes_told[-1][2] > 500_000
    assert not any(path.endswith((".py", ".bin")) for path in seen)


def test_weights_converted_by_the_hubs_bot_are_taken_and_nobody_elses(online, saved):
    whole = folder_files(saved)
    pickled = {name: data for name, data in whole.items() if name != "model.safetensors"}
    pickled["pytorch_model.bin"] = b"pickle"
    stranger = {"author": "somebody", "title": TITLE, "files": whole}
    bot = {"author": hub.BOT, "title": TITLE, "files": whole}
    assert "safetensors" in refusal("facebook/opt-125m", {"facebook/opt-125m": Repo(pickled, {3: stranger})})
    with fake_hub({"facebook/opt-125m": Repo(pickled, {3: stranger, 5: bot})}) as (address, seen):
        online.setenv("HF_ENDPOINT", address)
        first = load_model("opt-125m", device="cpu")
        assert any("refs/pr/5" in path for path in seen) and not any("refs/pr/3" in path for path in seen)
        requests = len(seen)
        assert load_model("opt-125m", device="cpu").revision == first.revision and len(seen) == requests


def test_a_gated_model_says_how_to_get_it(online):
    gated = {"meta-llama/Llama-3.1-8B": Repo(status=401, code="GatedRepo")}
    assert "set HF_TOKEN" in refusal("meta-llama/Llama-3.1-8B", gated)
    online.setenv("HF_TOKEN", "hf_" + "x" * 30)
    gated["meta-llama/Llama-3.1-8B"].status = 403
    said = refusal("meta-llama/Llama-3.1-8B", gated)
    assert "no access" in said and "hf_xxx" not in said


def test_an_unknown_model_or_revision_says_so(online, saved):
    assert "spelling" in refusal("nobody/nothing", {})
    assert "'v9'" in refusal("some/model", {"some/model": Repo(folder_files(saved))}, "v9")
    assert "owner/name" in refusal("what is/this?", {})


@pytest.mark.parametrize(("status", "word"), [(401, "token"), (429, "pause"), (503, "503")])
def test_other_refusals_are_told_apart(online, status, word):
    online.setattr("time.sleep", lambda seconds: None)  # the client waits before it asks again
    assert word in refusal("some/model", {"some/model": Repo(status=status)})


def test_no_network_says_so(online):
    with socket.socket() as closed:  # bound and never listening: every connection is refused
        closed.bind(("127.0.0.1", 0))
        online.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        online.setattr("time.sleep", lambda seconds: None)
        with pytest.raises(UsageError, match="cannot reach the Hub"):
            load_model("pythia-70m", device="cpu")


def test_offline_mode_says_so(hub_cache, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="HF_HUB_OFFLINE"):
        load_model("pythia-70m", device="cpu")
    with pytest.raises(UsageError, match="specviz fetch"):
        load_model("pythia-70m", device="cpu", download=False)


def test_no_room_is_known_before_anything_is_fetched(online, saved):
    repo = Repo(folder_files(saved), sizes={"model.safetensors": 10**16})
    with fake_hub({"some/model": repo}) as (address, seen):
        online.setenv("HF_ENDPOINT", address)
        with pytest.raises(UsageError, match="make room"):
            hub.snapshot("some/model")
    assert hub.local_snapshot("some/model") is None


def test_a_broken_download_is_not_taken_for_whole(online, saved):
    repo = Repo(folder_files(saved), sizes={"model.safetensors": 2_000_000})  # more than it sends
    online.setattr("time.sleep", lambda seconds: None)
    with fake_hub({"some/model": repo}) as (address, _):
        online.setenv("HF_ENDPOINT", address)
        with pytest.raises(UsageError):
            hub.snapshot("some/model")
    assert hub.local_snapshot("some/model") is None
