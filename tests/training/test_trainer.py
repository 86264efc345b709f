"""A run learns, skips what the recipe says, resumes exactly, and never leaves half a file behind."""

from __future__ import annotations

import errno
import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from specviz.errors import UsageError
from specviz.training import files
from specviz.training.config import TrainConfig, parse_contexts
from specviz.training.recipe import Recipe
from specviz.training.trainer import Trainer


def rows(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(small, corpus, tmp_path_factory):
    """One finished run, for the tests that only look."""
    torch.set_num_threads(1)
    trainer = Trainer(small, corpus, tmp_path_factory.mktemp("run"))
    trainer.run(quiet=True)
    return trainer


def test_the_loss_falls_and_the_log_says_so(finished):
    log = rows(finished.folder)
    evaluations = [row for row in log if row["kind"] == "evaluation"]
    assert log[0]["kind"] == "run" and log[0]["layers"] == 4
    assert [row["step"] for row in evaluations] == [0, 5, 10, 15, 20, 25, 30]
    assert evaluations[-1]["held_out_loss"] < 0.7 * evaluations[0]["held_out_loss"]
    assert all(len(row["agreement"]) == 4 and row["agreement"][-1] == 1 for row in evaluations)


def test_the_model_folder_is_an_ordinary_one(finished):
    model = LlamaForCausalLM.from_pretrained(finished.folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(finished.folder / "model")
    assert model.dtype == torch.float32 and model.config.tie_word_embeddings
    ids = tokenizer("def value", return_tensors="pt").input_ids
    out = model.generate(ids, max_new_tokens=4, do_sample=False)
    assert tokenizer.decode(out[0]).startswith("def value")
    for name, weight in finished.model.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight.bfloat16().float(), rtol=0, atol=0)


def test_layers_are_skipped_at_the_rate_of_the_recipe(small, corpus, tmp_path):
    config = replace(small, tokens=400 * 256, recipe=replace(small.recipe, dropout=0.8))
    trainer = Trainer(config, corpus, tmp_path)
    drawn = 0
    from specviz.training.trainer import step_generator

    for step in range(0, 400, 4):
        trainer.step = step
        choose = trainer.keep_rows(step_generator(0, step))
        for layer in range(4):
            choose(layer, 64)
        drawn += 64
    expected = [
        sum(config.recipe.dropout_rate(layer, 4, step, config.steps) for step in range(0, 400, 4)) / 100
        for layer in range(4)
    ]
    skipped = 1 - trainer.layer_runs.double() / drawn
    assert skipped[0] == 0
    assert skipped.tolist() == pytest.approx(expected, abs=0.02)  # 6,400 draws: four standard errors


def test_the_plain_twin_reads_the_same_text_and_skips_nothing(small, corpus, tmp_path):
    from specviz.training.trainer import step_generator

    twin = Trainer(replace(small, kind="plain", recipe=Recipe()), corpus, tmp_path / "plain")
    other = Trainer(small, corpus, tmp_path / "skip")
    for name, weight in twin.model.state_dict().items():
        assert torch.equal(weight, other.model.state_dict()[name])
    for step in (0, 17):
        twin.step = other.step = step
        assert torch.equal(twin.batch(step_generator(0, step)), other.batch(step_generator(0, step)))
    twin.train_step()
    assert twin.layer_runs.tolist() == [0, 0, 0, 0]  # never asked


def test_a_killed_and_resumed_run_ends_with_the_same_weights(finished, small, corpus, tmp_path):
    first = Trainer(small, corpus, tmp_path)
    small.save(tmp_path / "config.json")
    first.log({"kind": "run", **first.header()}, fresh=True)
    for step in range(17):
        first.train_step()
        if step == 12:
            first.save_checkpoint()
            first.evaluate()
    first.evaluate()  # of a step after the checkpoint: the resumed run writes it again
    config = TrainConfig.load(tmp_path / "config.json")
    assert config == small
    second = Trainer(config, corpus, tmp_path)
    assert second.load_checkpoint() and second.step == 13
    assert [row.get("step") for row in rows(tmp_path)] == [None, 13]
    second.run(quiet=True)
    for name, weight in finished.model.state_dict().items():
        assert torch.equal(weight, second.model.state_dict()[name]), name


def test_minutes_become_tokens_once(small, corpus, tmp_path, monkeypatch):
    trainer = Trainer(replace(small, tokens=0, minutes=0.01), corpus, tmp_path)
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.calibrate()
    assert trainer.config.tokens > 0 and trainer.step == 0
    assert all(torch.equal(weight, before[name]) for name, weight in trainer.model.state_dict().items())
    assert not trainer.optimizer.state_dict()["state"]


def test_a_full_disk_is_said_in_one_line_and_leaves_the_old_checkpoint(finished, monkeypatch, tmp_path):
    path = finished.folder / "checkpoint.pt"
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UsageError, match="disk is full"):
        finished.save_checkpoint()
    assert path.read_bytes() == before
    assert not list(finished.folder.glob("*.tmp")) and not list(finished.folder.glob(".*.tmp"))


def test_a_model_folder_is_replaced_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "model"
    files.replace_folder(folder, lambda new: (new / "a").write_text("old"))

    def fails(new):
        (new / "a").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UsageError, match="disk is full"):
        files.replace_folder(folder, fails)
    assert (folder / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_learning_rate_and_context_follow_the_schedule(small):
    assert small.learning_rate_at(0) == pytest.approx(small.learning_rate / 3)  # warm after a tenth
    assert small.learning_rate_at(small.steps - 1) < 0.1 * small.learning_rate
    assert [small.context_at(step) for step in (0, 14, 15, 29)] == [32, 32, 64, 64]
    assert parse_contexts("32:0.5,64") == small.contexts


@pytest.mark.parametrize("text", ["", "12x", "128:0.5", "128:0.9,256:0.5,512", "4"])
def test_contexts_that_cannot_be_read_are_refused(text):
    with pytest.raises(UsageError, match="--contexts"):
        parse_contexts(text)


def test_exits_that_learn_from_the_model_resume_exactly_too(small, corpus, tmp_path, monkeypatch):
    from specviz.training import trainer as module

    monkeypatch.setattr(module, "OWN_REFRESH", 4)
    monkeypatch.setattr(module, "OWN_ROWS", 8)
    config = replace(small, tokens=12 * 256, recipe=replace(small.recipe, own_from=0.5, own_texts=2))
    whole = Trainer(config, corpus, tmp_path / "whole")
    for _ in range(10):
        whole.train_step()
    assert whole.own_texts.shape == (8, module.OWN_PROMPT + module.OWN_WRITTEN)
    parts = Trainer(config, corpus, tmp_path / "parts")
    for _ in range(7):
        parts.train_step()
    (tmp_path / "parts").mkdir()
    parts.save_checkpoint()
    again = Trainer(config, corpus, tmp_path / "parts")
    again.load_checkpoint()
    for _ in range(3):
        again.train_step()
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name]), name
