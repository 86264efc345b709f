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


def test_a_training_in_stages_is_shipped_with_the_commands_that_repeat_it(package, tmp_path):
    """Stopped, continued from its weights in another order of layers, resumed with another weight of the exits."""
    one, two, to = tmp_path / "one", tmp_path / "two", tmp_path / "models" / "tiny-layerskip"
    words = ["--corpus", package, *SIZE, "--evaluate-every", "128"]
    assert train("layerskip", "--out", one, "--tokens", 1280, "--stop-step", 4, *words) == 0
    words += ["--tokens", 1280, "--weights", one / "model", "--first-step", 4, "--layer-order", "0,2,1"]
    assert train("layerskip", "--out", two, "--stop-step", 7, *words) == 0
    assert train("layerskip", "--out", two, "--resume", "--last-share", "0.75") == 0
    assert train("ship", "--run", two, "--before", one, "--to", to, "--machine", "a test") == 0
    card = (to / "README.md").read_text()
    commands = card.split("```sh\n")[1].split("```")[0].replace(" \\\n   ", "").splitlines()
    assert "--stop-step 4" in commands[0] and "--weights" not in commands[0]
    assert "--weights runs/layerskip-1/model --first-step 4 --stop-step 7" in commands[1]
    assert "--layer-order 0,2,1" in commands[1] and "last-share 0.75" not in commands[1]
    assert commands[2] == "python -m specviz train layerskip --out runs/layerskip-2 --resume --last-share 0.75"
    rows = [json.loads(line) for line in (to / "training_log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "evaluation"] == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10]
    assert str(package) not in (to / "training_log.jsonl").read_text()
    assert json.loads((to / "evaluation.json").read_text())["finished"]
