"""The models in assets/models are what their cards say: weights, configuration, log and measurements belong together."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

ASSETS = Path(__file__).resolve().parents[2] / "assets" / "models"
NAMES = ("tiny-layerskip", "tiny-plain", "tiny-draft")


def evaluation(name: str) -> dict:
    return json.loads((ASSETS / name / "evaluation.json").read_text())


def log(name: str) -> list[dict]:
    return [json.loads(line) for line in (ASSETS / name / "training_log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_that_were_measured(name):
    digest = hashlib.sha256((ASSETS / name / "model.safetensors").read_bytes()).hexdigest()
    card = (ASSETS / name / "README.md").read_text()
    assert evaluation(name)["sha256"] == digest
    assert f"`{digest}`" in card and f"# {name}\n" in card


@pytest.mark.parametrize("name", NAMES)
def test_card_config_and_log_say_the_same(name):
    card, rows = (ASSETS / name / "README.md").read_text(), log(name)
    config = json.loads((ASSETS / name / "config.json").read_text())
    shape = rows[0]["config"]["shape"]
    assert config["architectures"] == ["LlamaForCausalLM"] and config["dtype"] == "float32"
    assert (shape["layers"], shape["hidden"], shape["vocabulary"]) == (
        config["num_hidden_layers"], config["hidden_size"], config["vocab_size"],
    )  # fmt: skip
    assert f"{shape['layers']} layers, hidden {shape['hidden']}" in card
    last = [row for row in rows if row["kind"] == "evaluation"][-1]
    assert last["held_out_loss"] == evaluation(name)["held_out_loss"]
    assert f"{last['held_out_loss']:.4f} nats" in card
    assert f"| tokens seen | {last['tokens'] / 1e6:.2f} M |" in card
    assert f"python -m specviz train {rows[0]['config']['kind']} --tokens {rows[-1].get('tokens') and rows[0]['config']['tokens']}" in card
    assert card.count("Greedy:\n") == card.count("Sampled:\n") == 5


@pytest.mark.parametrize("name", NAMES)
def test_nothing_shipped_names_the_machine_it_was_made_on(name):
    for path in ASSETS.joinpath(name).glob("*.*"):
        if path.suffix in (".md", ".json", ".jsonl") and path.name != "tokenizer.json":
            assert not re.search(r"/(opt|work|home|root|tmp|usr)/", path.read_text()), path


def test_the_log_names_the_held_out_files_and_they_were_not_trained_on():
    names = log("tiny-layerskip")[0]["held_out_files"]
    from specviz.training.corpus import SourceFile

    assert len(names) >= 50 and all(SourceFile(name, "").held_out for name in names)
    assert log("tiny-plain")[0]["held_out_files"] == names


def test_the_twins_differ_in_the_recipe_alone():
    one, other = (log(name)[0]["config"] for name in ("tiny-layerskip", "tiny-plain"))
    same = ("shape", "corpus", "stdlib", "tokens", "batch_tokens", "contexts", "learning_rate", "weight_decay", "seed")
    assert {key: one[key] for key in same} == {key: other[key] for key in same}
    assert one["recipe"]["exits"] and not other["recipe"]["exits"]


@pytest.mark.parametrize("name", NAMES)
def test_the_models_load_with_transformers_alone(name):
    model = LlamaForCausalLM.from_pretrained(ASSETS / name)
    tokenizer = AutoTokenizer.from_pretrained(ASSETS / name)
    assert model.dtype == torch.float32 and model.config.vocab_size == len(tokenizer)
    ids = tokenizer("def __init__(self, ", return_tensors="pt").input_ids
    out = model.generate(ids, max_new_tokens=8, do_sample=False)
    assert len(tokenizer.decode(out[0])) > len("def __init__(self, ")
    indented = tokenizer.tokenize("x\n        y")
    assert len(indented) == 3


def test_all_three_share_one_tokenizer_and_fit_the_size_limit():
    texts = {(ASSETS / name / "tokenizer.json").read_text() for name in NAMES}
    assert len(texts) == 1
    total = sum(path.stat().st_size for name in NAMES for path in (ASSETS / name).iterdir())
    assert total < 25e6
    layers = {name: json.loads((ASSETS / name / "config.json").read_text())["num_hidden_layers"] for name in NAMES}
    assert layers["tiny-draft"] * 5 <= layers["tiny-layerskip"] == layers["tiny-plain"]
