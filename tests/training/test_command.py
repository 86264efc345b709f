"""``python -m specviz train`` from the outside."""

from __future__ import annotations

import json

import pytest

from specviz.__main__ import main

SIZE = ["--layers", "3", "--hidden", "32", "--intermediate", "48", "--heads", "2", "--vocabulary", "320", "--batch-tokens", "128", "--contexts", "32", "--no-stdlib", "--threads", "1"]  # fmt: skip


def train(*words) -> int:
    return main(["train", *map(str, words)])


def test_a_run_its_twin_and_a_draft_from_the_command_line(package, tmp_path, capsys):
    run, twin, draft = tmp_path / "skip", tmp_path / "plain", tmp_path / "draft"
    assert train("layerskip", "--out", run, "--tokens", 1280, "--corpus", package, *SIZE) == 0
    assert "held-out loss" in capsys.readouterr().out
    assert train("plain", "--out", twin, "--tokens", 640, "--corpus", package, *SIZE) == 0
    words = [*SIZE, "--layers", 1, "--generated-rows", 8, "--target", run / "model"]
    assert train("distill", "--out", draft, "--tokens", 1280, "--corpus", package, *words) == 0
    rows = [json.loads(line) for line in (draft / "log.jsonl").read_text().splitlines()]
    assert 0 < rows[-1]["target_agreement"] <= 1
    assert json.loads((draft / "model" / "config.json").read_text())["num_hidden_layers"] == 1
    # further, with a later budget; and not over an existing run
    assert train("layerskip", "--out", run, "--resume", "--tokens", 2560) == 0
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["tokens"] == 2560
    assert train("layerskip", "--out", run, "--tokens", 1280, "--corpus", package, *SIZE) == 2
    assert "--resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["layerskip"], "say how long to train"),
        (["layerskip", "--minutes", "0"], "above 0"),
        (["layerskip", "--tokens", "10", "--hidden", "30"], "multiple of twice --heads"),
        (["layerskip", "--tokens", "10", "--dropout", "1"], "--dropout"),
        (["plain", "--resume"], "nothing to resume"),
        (["distill", "--tokens", "10"], "--target"),
        (["layerskip", "--tokens", "10", "--corpus", "nowhere"], "no such folder"),
        (["ship"], "--run"),
    ],
)
def test_requests_that_cannot_work_are_one_line(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train(*words, *([] if "ship" in words else ["--out", tmp_path / "run"])) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
