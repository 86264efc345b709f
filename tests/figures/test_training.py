"""The figures of a training show what its log says."""

from __future__ import annotations

import json

import pytest

from specviz.figures.theme import DARK, LIGHT, Look, table_of
from specviz.figures.training import read_log, training_curve, training_schedules


def log(loss: float = 3.0, layers: int = 6) -> list[dict]:
    header = {
        "kind": "run",
        "layers": layers,
        "schedule_tokens": [0, 50, 100],
        "dropout": [[0.0, 0.01 * layer, 0.02 * layer] for layer in range(layers)],
        "exit_weights": {str(layer): 0.2 for layer in range(1, layers)},
        "published_exit_weights": {str(layer): layer / 15 for layer in range(1, layers)},
    }
    rows = [
        {
            "kind": "evaluation",
            "tokens": 1000 * step,
            "held_out_loss": 7 - (7 - loss) * step / 4,
            "agreement": [*(0.1 * layer + 0.02 * step for layer in range(layers - 1)), 1.0],
        }
        for step in range(5)
    ]
    return [header, *rows]


@pytest.mark.parametrize("look", [LIGHT, DARK, Look(lang="ja")])
def test_the_curve_has_every_run_and_every_exit_but_the_last(look):
    fig = training_curve({"layerskip": log(), "plain": log(2.9)}, look=look)
    table = table_of(fig)
    assert set(table["run"]) == {"layerskip", "plain"} and len(table) == 2 * 5 * 6
    lower = [trace for trace in fig.data if trace.yaxis == "y2"]
    assert len(lower) == 5
    assert list(lower[1].y) == pytest.approx([0.14, 0.16, 0.18])  # while nothing is known yet is left out
    assert "{" not in fig.layout.meta["learn"]


def test_the_schedules_are_those_of_the_last_run_in_the_log():
    fig = training_schedules([*log(), *log()])
    table = table_of(fig)
    assert list(table["layer"]) == [1, 2, 3, 4, 5, 6]
    assert table["dropout_at_end"].iloc[-1] == pytest.approx(0.1)
    assert table["exit_weight"].iloc[0] == 0
    assert table["published_weight"].iloc[-1] == pytest.approx(5 / 15)


def test_without_data_the_figures_say_so():
    assert table_of(training_curve({})).empty
    assert table_of(training_schedules([])).empty


def test_an_agreement_that_is_no_share_is_refused():
    rows = log()
    rows[1]["agreement"][0] = 1.5
    with pytest.raises(ValueError, match="agreement holds 1.5"):
        training_curve({"layerskip": rows})


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"kind": "run"}) + "\n{half")
    with pytest.raises(ValueError, match="line 2"):
        read_log(path)
