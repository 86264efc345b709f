"""Interleaving, resuming, refusing; engines of ours and of transformers give the same tokens at the same settings."""

from __future__ import annotations

import json

import pytest

from specviz.bench.engines import Engine, copy_for_peers, label, ours, transformers_engine
from specviz.bench.measure import measure
from specviz.bench.rows import GROUPS, ROWS, rows_of
from specviz.commands.bench import methods
from specviz.decoding import MethodConfig
from specviz.errors import UsageError
from specviz.models import zoo
from specviz.models.lean_weights import lean_weights
from tests.tiny import fresh, tiny_model, tiny_pair

PROMPTS = [("one", [5, 6]), ("two", [7])]


def engine(name: str, log: list, ids=(1, 2, 3), fault: Exception | None = None) -> Engine:
    def run(prompt, limit):
        log.append((name, tuple(prompt)))
        if fault:
            raise fault
        return list(ids)

    return Engine(name, "ours" if name == "a" else "transformers", "autoregressive", run)


def test_engines_take_turns_and_the_order_alternates():
    log: list = []
    rows = measure([engine("a", log), engine("b", log)], PROMPTS, 3, 2, setting={})
    assert len(rows) == 8 and len(log) == 8 + 4  # each engine warms up once on each prompt
    assert [row.engine for row in rows] == ["a", "b", "a", "b", "b", "a", "b", "a"]
    assert all(row.tokens == 3 and row.seconds > 0 for row in rows)


def test_a_stopped_measurement_goes_on_in_its_file(tmp_path):
    out, log = tmp_path / "rows.jsonl", []
    measure([engine("a", log)], PROMPTS, 3, 1, setting={"target": "x"}, out=out)
    with out.open("a") as file:
        file.write('{"engine": "a", "prom')  # killed while writing
    log.clear()
    rows = measure([engine("a", log)], PROMPTS, 3, 2, setting={"target": "x"}, out=out)
    assert len(rows) == 4 and len(log) == 2 + 2  # the warm-up, and the missing repetition
    assert [json.loads(line).get("repetition") for line in out.read_text().splitlines()] == [None, 0, 0, 1, 1]
    with pytest.raises(UsageError, match="another measurement"):
        measure([engine("a", log)], PROMPTS, 3, 2, setting={"target": "y"}, out=out)


def test_a_peer_that_fails_is_written_down_and_the_others_go_on():
    log: list = []
    rows = measure([engine("a", log), engine("b", log, fault=IndexError("no layer"))], PROMPTS, 3, 2, setting={})
    assert [row.fault for row in rows if row.engine == "b"] == ["IndexError: no layer"]
    assert len([row for row in rows if row.engine == "a"]) == 4


@pytest.mark.parametrize("config", [
    MethodConfig("autoregressive"), MethodConfig("constant", lookahead=3), MethodConfig("heuristic"),
    MethodConfig("dynamic", lookahead=6), MethodConfig("prompt-lookup"),
    MethodConfig("early-exit", exit_layer=3, lookahead=2),
], ids=lambda config: config.name)
def test_ours_and_transformers_give_the_same_tokens(config):
    target, draft = (fresh(loaded) for loaded in tiny_pair("llama"))
    mine = ours(config, target, draft)
    theirs = transformers_engine(config, copy_for_peers(fresh(target)), draft)
    prompt = [5, 80, 90, 80, 90, 33]
    assert mine.run(prompt, 24) == theirs.run(prompt, 24)
    counts = mine.counts()
    assert counts["iterations"] >= 1 and counts["stream"]
    assert mine.method == theirs.method and config.name in label(config)


def test_peers_run_on_weights_that_nobody_rearranged():
    target = fresh(tiny_model("llama"))
    theirs = copy_for_peers(target)
    lean_weights(target)
    assert not target.model.model.layers[0].self_attn.q_proj.weight.is_contiguous()
    assert theirs.model.model.layers[0].self_attn.q_proj.weight.is_contiguous()


def test_transformers_settings_are_put_back():
    target, draft = tiny_pair("llama")
    before = draft.model.generation_config.to_dict()
    transformers_engine(MethodConfig("heuristic"), fresh(target), draft).run([5, 6, 7], 8)
    assert draft.model.generation_config.to_dict() == before


def test_the_sources_rows_name_pairs_of_the_zoo():
    assert set(GROUPS) == {"opt", "codegen", "flan-t5", "llama", "pythia", "layerskip"}
    assert all(row.pair in zoo.PAIRS for row in ROWS)
    assert {row.published for row in rows_of("opt")} == {1.82, 2.71, 1.23, 1.59}
    with pytest.raises(UsageError, match="choose from opt"):
        rows_of("gpt")


def test_methods_are_read_from_the_command_line():
    target, draft = tiny_pair("llama")
    found = methods("early-exit:exit_layer=2:lookahead=3,dynamic:threshold=0.5", target, draft, "dynamic")
    assert found == [
        MethodConfig("autoregressive"), MethodConfig("early-exit", exit_layer=2, lookahead=3),
        MethodConfig("dynamic", threshold=0.5),
    ]
    assert [config.name for config in methods(None, target, draft, "dynamic")] == [
        "autoregressive", "constant", "heuristic", "dynamic",
    ]
    with pytest.raises(UsageError, match="needs a draft model"):
        methods("dynamic", target, None, "autoregressive")
    with pytest.raises(UsageError, match="lookahead=4"):
        methods("early-exit:4", target, None, "autoregressive")


def test_repetitions_end_whole_when_it_is_enough():
    engine = Engine("an engine", "ours", "autoregressive", lambda prompt, limit: [1])
    other = Engine("another", "ours", "autoregressive", lambda prompt, limit: [1])
    asked = []
    rows = measure([engine, other], [("a", [1]), ("b", [2])], 4, 5, setting={}, enough=lambda: asked.append(1) or len(asked) == 2)
    assert [(row.repetition, row.prompt) for row in rows].count((1, "b")) == 2 and len(rows) == 8
