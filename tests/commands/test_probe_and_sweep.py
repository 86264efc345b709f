"""The commands probe and sweep, as they are typed."""

import json

import pytest

from specviz.__main__ import main
from specviz.analysis.probe import load_probe
from specviz.commands.sweep import numbers
from specviz.errors import UsageError
from tests.analysis.test_cost import known_costs
from tests.tiny import tiny_pair


@pytest.fixture
def models(monkeypatch):
    """Loading is tested elsewhere: --draft anything gives the tiny pair, without it the target alone."""
    target, draft = tiny_pair("llama")

    def load(args, progress):
        return target, draft if args.draft else None, "early-exit"

    monkeypatch.setattr("specviz.commands.probe.load_models", load)
    monkeypatch.setattr("specviz.commands.sweep.load_models", load)
    known = known_costs(target=target.name, draft=draft.name, layers=6)
    monkeypatch.setattr("specviz.analysis.timing.measure_costs", lambda *a, **k: known)
    monkeypatch.setattr("specviz.analysis.sweep.measure_costs", lambda *a, **k: known)
    return target, draft


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ("1:4", int, (1, 2, 3, 4)), ("2:9:3", int, (2, 5, 8)), ("3,5,3", int, (3, 5)), ("7", int, (7,)),
        ("0:0.3:0.1", float, (0.0, 0.1, 0.2, 0.3)), ("1:2,5", int, (1, 2, 5)), (None, int, None),
    ],
)  # fmt: skip
def test_ranges(text, kind, wanted):
    assert numbers(text, "--x", kind) == wanted


@pytest.mark.parametrize("text", ["", "a", "4:1", "1:2:0", "1:2:3:4", "0:1:0.5", "1:999999999", "nan"])
def test_ranges_that_make_no_sense(text):
    with pytest.raises(UsageError, match="--x .*write a range such as"):
        numbers(text, "--x", int)


def test_probe_measures_saves_and_shows_again(models, tmp_path, capsys):
    out, costs = tmp_path / "p.npz", tmp_path / "c.json"
    given = ["probe", "--prompt", "The cat sat on", "--max-new-tokens", "12", "--max-lookahead", "4"]
    assert main([*given, "--exit-layers", "2:4:2", "--costs", str(costs), "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["exit_layer"] for row in report["rows"]] == [2, 4]
    assert load_probe(out).rows == (2, 4)
    assert costs.exists()
    assert main(["probe", "--from", str(out), "--costs", str(costs)]) == 0
    shown = capsys.readouterr().out
    assert "best dynamic" in shown
    assert f"{report['rows'][1]['right']:.1%}" in shown
    assert main([*given, "--draft", "d", "--no-costs"]) == 0
    assert "best" not in capsys.readouterr().out


def test_sweep_prints_its_cells_and_a_last_line_of_json(models, tmp_path, capsys):
    prompts = tmp_path / "p.txt"
    prompts.write_text("The cat\nOnce upon\n")
    given = ["sweep", "--exit-layers", "2:4:2", "--lookaheads", "1:2", "--prompts", str(prompts),
             "--max-new-tokens", "5", "--out", str(tmp_path / "s.jsonl")]  # fmt: skip
    assert main(given) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "4 cells of early-exit on 2 prompts" in lines[0]
    assert sum(line.endswith("left") for line in lines) == 4
    summary = json.loads(lines[-1])
    assert summary["cells"] == 4
    assert summary["identical"] and summary["as_simulated"]
    assert set(summary["median_absolute_error"]) == {"tokens per second", "speed-up"}
    assert main([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == summary["best"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["probe"], "no prompt"),
        (["probe", "--prompt", "x", "--exit-layers", "9"], "choose 1..5"),
        (["probe", "--prompt", "x", "--max-lookahead", "0"], "choose 1"),
        (["probe", "--from", "nowhere.npz"], "No such file"),
        (["probe", "--trace", "nowhere.jsonl"], "No such file"),
        (["sweep", "--prompts", "nowhere.txt"], "no such file"),
        (["sweep", "--lookaheads", "8:1"], "write a range"),
        (["sweep", "--thresholds", "0.5", "--method", "early-exit"], "has no threshold"),
        (["sweep", "--method", "constant"], "needs a draft model"),
        (["sweep", "--repetitions", "0"], "choose 1 or more"),
    ],
)
def test_mistakes_are_one_line_and_status_2(models, given, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(given) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert says in error
