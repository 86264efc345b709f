"""A sweep: one row a cell, resumable without running a finished cell again."""

import json

import pytest

from specviz.analysis import sweep
from specviz.analysis.sweep import Plan, cells_of, errors, read_sweep, run_sweep
from specviz.decoding import MethodConfig
from specviz.errors import UsageError
from specviz.models.loading import encode_prompt
from tests.analysis.test_cost import known_costs
from tests.tiny import PROMPTS, tiny_pair


def plan_of(**over) -> Plan:
    target, _ = tiny_pair("llama")
    prompts = tuple((f"p{i}", tuple(encode_prompt(target, PROMPTS[i]))) for i in range(2))
    cells = cells_of("early-exit", 6, exit_layer=(2, 4), lookahead=(1, 3))
    return Plan(**{"target": target, "draft": None, "cells": cells, "prompts": prompts, "limit": 6, **over})


def test_cells_are_all_combinations_in_order():
    cells = cells_of("early-exit-dynamic", 6, exit_layer=(2, 4), lookahead=None, threshold=(0.0, 0.5))
    assert [(c.exit_layer, c.threshold) for c in cells] == [(2, 0.0), (2, 0.5), (4, 0.0), (4, 0.5)]
    assert {c.lookahead for c in cells} == {12}
    with pytest.raises(UsageError, match="constant has no threshold"):
        cells_of("constant", 6, threshold=(0.5,))
    with pytest.raises(UsageError, match="choose 1..5"):
        cells_of("early-exit", 6, exit_layer=(6,))


def test_a_sweep_goes_on_where_it_was_killed(tmp_path, monkeypatch):
    path, plan, costs = tmp_path / "s.jsonl", plan_of(), known_costs(target="tiny-llama-0", layers=6)
    told = []
    rows = run_sweep(plan, path, costs=costs, told=lambda row, left: told.append(left))
    assert [(row["exit_layer"], row["lookahead"]) for row in rows] == [(2, 1), (2, 3), (4, 1), (4, 3)]
    assert all(row["identical"] and row["as_simulated"] for row in rows)
    assert told[-1] == pytest.approx(0, abs=1e-6)
    assert told[0] > told[-1]
    for row in rows:
        assert row["tokens_per_second"] == pytest.approx(row["tokens"] / row["seconds"])
        assert row["error"] == pytest.approx(row["predicted_tokens_per_second"] / row["tokens_per_second"] - 1)
    whole = path.read_text().splitlines(keepends=True)
    assert len(whole) == 5
    assert json.loads(whole[0])["costs"]["sizes"] == [1, 2, 4]

    path.write_text("".join(whole[:3]) + whole[3][:40])  # killed while the third cell was written
    ran = []
    cell = sweep._Runner.cell
    monkeypatch.setattr(sweep._Runner, "cell", lambda self, config: ran.append(config) or cell(self, config))
    again = run_sweep(plan, path)
    assert [(c.exit_layer, c.lookahead) for c in ran] == [(4, 1), (4, 3)]
    assert again[:2] == rows[:2]
    assert len(path.read_text().splitlines()) == 5
    ran.clear()
    assert run_sweep(plan, path) == again
    assert not ran
    assert [count for _, _, count in errors(again)] == [4, 4]
    header, kept = read_sweep(path)
    assert header["limit"] == 6
    assert kept == again


def test_a_file_of_another_sweep_is_left_alone(tmp_path):
    path = tmp_path / "s.jsonl"
    run_sweep(plan_of(cells=(MethodConfig("early-exit", 1, exit_layer=2),)), path, costs=known_costs(layers=6))
    before = path.read_bytes()
    with pytest.raises(UsageError, match="holds another sweep: limit is 6 there and 7 here"):
        run_sweep(plan_of(limit=7), path)
    with pytest.raises(UsageError, match="holds another sweep: prompts"):
        run_sweep(plan_of(prompts=(("q", (5, 6)),)), path)
    assert path.read_bytes() == before
    (tmp_path / "other").write_text("hello\n")
    with pytest.raises(UsageError, match="line 1: not a row of a sweep"):
        run_sweep(plan_of(), tmp_path / "other")
    with pytest.raises(UsageError, match="at least one cell"):
        plan_of(cells=())


def test_two_models_and_prompt_lookup(tmp_path):
    target, draft = tiny_pair("llama")
    costs = known_costs()
    plan = plan_of(draft=draft, cells=cells_of("dynamic", 6, lookahead=(4,), threshold=(0.3,)))
    row = run_sweep(plan, tmp_path / "a.jsonl", costs=costs)[0]
    assert row["predicted_speedup"] > 0
    assert row["textbook_speedup"] is None  # a threshold is no part of the formula
    plan = plan_of(cells=cells_of("prompt-lookup", 6, lookahead=(4,)))
    row = run_sweep(plan, tmp_path / "b.jsonl", costs=costs)[0]
    assert row["identical"]
    assert "predicted_speedup" not in row
