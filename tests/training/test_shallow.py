"""A draft of the target's own layers: the target's answers are the same whenever they are written, and are learned from."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from specviz.errors import UsageError
from specviz.models import zoo
from specviz.models.loading import encode_prompt, load_pair
from specviz.training import shallow as module
from specviz.training.answers import Answers, AnswerSettings, group_questions, write_answers
from specviz.training.batches import Answer, BatchModel, answer
from specviz.training.config import SHALLOW
from specviz.training.forward import TrainingForward
from specviz.training.questions import near, questions
from specviz.training.shallow import Texts, family, frequent, shallow_trainer, split_families
from tests.tiny import tiny_model

SETTINGS = AnswerSettings("tiny", prompts=12, group=4, limit=20)
CONFIG = replace(
    SHALLOW, target="tiny", tokens=12 * 256, batch_tokens=256, contexts=((1.0, 256),), kept_layers=(0, 5), head_tokens=120,
    learning_rate=3e-3, evaluate_every=4 * 256,
)  # fmt: skip


@pytest.fixture(scope="module")
def target():
    return tiny_model("llama", chat=True, max_position_embeddings=4096)


@pytest.fixture(scope="module")
def written(target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("distill")
    write_answers(SETTINGS, folder / "answers", target, quiet=True)
    return folder


@pytest.fixture(autouse=True)
def few_prompts(monkeypatch):
    whole = module.load_prompts
    monkeypatch.setattr(module, "load_prompts", lambda task: whole(task)[:1])


def test_no_prompt_is_one_of_those_that_are_measured():
    from specviz.analysis.prompts import load_prompts

    measured = {prompt.text for prompt in load_prompts("all")}
    found = questions()
    texts = [question.text for kind in found.values() for question in kind]
    assert len(texts) > 3000 and len(set(texts)) == len(texts) and not measured & set(texts)
    asked = "Write a letter from a lighthouse to the ships that pass."
    assert near(asked, [frozenset(re.findall("[a-z]+", text.lower())) for text in measured])


def test_answers_in_a_batch_are_those_of_the_model_alone(target):
    prompts = [encode_prompt(target, text) for text in ("The cat", "def add(a, b):", "x")]
    rows = answer(BatchModel(target.model), prompts, [0.0] * 3, 24, frozenset({2}), torch.Generator(), at_once=40)
    for prompt, row in zip(prompts, rows, strict=True):
        ids = torch.tensor([prompt])
        alone = target.model.generate(ids, do_sample=False, max_new_tokens=24, eos_token_id=2, pad_token_id=0)[0].tolist()
        assert row.ids.tolist() == alone and row.prompt == len(prompt)
        logits = target.model(torch.tensor([alone])).logits[0, :-1]
        assert row.picks[:-1].tolist() == logits.argmax(-1).tolist()
        head = target.model.lm_head.weight
        assert torch.allclose(torch.from_numpy(row.states[:-1]).float() @ head.T, logits, atol=0.05)


def test_rows_that_end_leave_the_batch_and_the_others_are_not_changed(target):
    prompts = [encode_prompt(target, text) for text in ("The cat", "def add(a, b):", "x", "Once", "naïve")]
    model = BatchModel(target.model)
    free = answer(model, prompts, [0.0] * 5, 24, frozenset(), torch.Generator())
    end = int(free[0].ids[free[0].prompt + 3])
    ended = answer(model, prompts, [0.0] * 5, 24, frozenset({end}), torch.Generator())
    for long, short in zip(free, ended, strict=True):
        part = long.ids[long.prompt :].tolist()
        size = part.index(end) + 1 if end in part else len(part)
        assert short.ids.tolist() == long.ids[: long.prompt + size].tolist()


def test_answers_resume_identically(target, written, tmp_path):
    answers = Answers(written / "answers")
    assert answers.written() == 3
    # Stopped behind the first group, and again.
    for prompts in (4, 8, 12):
        write_answers(replace(SETTINGS, prompts=prompts), tmp_path / "again", target, quiet=True)
    again = Answers(tmp_path / "again")
    for number in range(3):
        for (kind, heat, one), (other_kind, other_heat, other) in zip(answers.load(number), again.load(number), strict=True):
            assert (kind, heat, one.ids.tolist()) == (other_kind, other_heat, other.ids.tolist())
            assert np.array_equal(one.states, other.states) and np.array_equal(one.picks, other.picks)
    with pytest.raises(UsageError, match="other settings"):
        write_answers(replace(SETTINGS, limit=9), tmp_path / "again", target, quiet=True)


def test_a_third_of_the_groups_asks_for_summaries_of_what_was_written(target, tmp_path):
    class Written(Answers):
        def passages(self, tokenizer, before):
            return ["A text of its own."] if before else []

    asked = group_questions(SETTINGS, 2, Written(tmp_path), target.tokenizer)
    assert {question.kind for question, _ in asked} == {"summary"} and "A text of its own." in asked[0][0].text
    assert {question.kind for question, _ in group_questions(SETTINGS, 1, Written(tmp_path), target.tokenizer)} >= {"open"}


def test_a_damaged_group_is_named(written, tmp_path):
    (tmp_path / "00000.npz").write_bytes((written / "answers" / "00000.npz").read_bytes()[:500])
    with pytest.raises(UsageError, match="00000.npz"):
        Answers(tmp_path).load(0)


def test_answers_kept_out_have_no_relatives_in_the_training(target):
    def row(prompt: str, text: str) -> Answer:
        ids = [encode_prompt(target, prompt, chat=True), target.tokenizer.encode(text, add_special_tokens=False)]
        return Answer(np.array(sum(ids, []), dtype=np.uint16), len(ids[0]), np.zeros((0, 0)), np.zeros(0))

    passages = [" ".join(f"{word}{number}" for word in ["the", "old", "man", "went", "to", "sea", "on", "day"]) + " and so on." for number in range(60)]
    rows = [("open", 0.0, row("Tell me a story.", passage.replace(" old", "\nold"))) for passage in passages]
    rows += [("summary", 0.7, row(f"{ask}\n\n{passage}", "He went.")) for passage in passages for ask in ("Shorten this.", "Sum up:")]
    names = [family(kind, one, target.tokenizer) for kind, _, one in rows]
    assert len(set(names)) == 60 and names[60] == names[61] == names[0]
    train, out = split_families(rows, target.tokenizer)
    assert len(train) + len(out) == 180 and len(out) % 3 == 0 and 0 < len(out) < 60
    fewer = split_families(rows[:90], target.tokenizer)[1]
    assert {id(one) for one in fewer} == {id(one) for _, _, one in rows[:90]} & {id(one) for one in out}


def test_texts_behind_one_another_do_not_see_each_other(target, written):
    texts = Texts.of([row for _, _, row in Answers(written / "answers").load(0)])
    forward = TrainingForward(target.model)
    ids, lengths, places = texts.batch([0, 2, 1])
    with torch.no_grad():
        together = forward.packed(ids, lengths)[0]
        alone = torch.cat([forward.states(part[None])[-1][0] for part in ids.split(lengths)])
        logits = forward.normed(together[places]) @ target.model.lm_head.weight.T
    assert torch.allclose(together, alone, atol=1e-4)
    # The target's layers themselves pick what was kept as the target's picks.
    kept = texts.picks[texts.whole([0, 2, 1], places, lengths)]
    assert (logits.argmax(-1) == kept).float().mean() > 0.99


def test_the_trimmed_head_holds_the_most_frequent_tokens(written):
    texts = Texts.of([row for _, _, row in Answers(written / "answers").load(0)])
    seen = torch.bincount(torch.cat((texts.picks, texts.ids)))
    few = frequent(texts, 20, 304)
    assert len(few) == 20 and few.tolist() == sorted(few.tolist())
    assert seen[few].min() >= seen[torch.tensor(sorted(set(range(len(seen))) - set(few.tolist())))].max()


def test_the_draft_learns_the_targets_choices_and_resumes_identically(target, written, tmp_path):
    whole = shallow_trainer(CONFIG, tmp_path / "whole", written, target)
    whole.run(quiet=True)
    rows = [line for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines() if '"evaluation"' in line]
    first, last = (json.loads(row) for row in (rows[0], rows[-1]))
    assert last["held_out_loss"] < first["held_out_loss"] and last["target_agreement"] > first["target_agreement"]
    assert last["prompts_drafted"] > 0 and first["tokens"] == 0
    broken = shallow_trainer(replace(CONFIG, stop_step=5), tmp_path / "broken", written, target)
    broken.run(quiet=True)
    again = shallow_trainer(CONFIG, tmp_path / "broken", written, target)
    assert again.load_checkpoint() and again.step == 5
    again.run(quiet=True)
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(whole.model.lm_head.weight, target.model.lm_head.weight) or whole.model.config.tie_word_embeddings


def test_layers_that_the_target_does_not_have_are_refused(target, written, tmp_path):
    with pytest.raises(UsageError, match="0 to 5"):
        shallow_trainer(replace(CONFIG, kept_layers=(0, 6)), tmp_path, written, target)
    with pytest.raises(UsageError, match="no answers yet"):
        shallow_trainer(CONFIG, tmp_path, tmp_path, target)


def test_what_is_saved_loads_as_a_draft(written, tmp_path, monkeypatch, target):
    folder = tmp_path / "target"
    target.model.save_pretrained(folder)
    target.tokenizer.save_pretrained(folder)
    trainer = shallow_trainer(replace(CONFIG, tokens=256), tmp_path / "run", written, target)
    trainer.run(quiet=True)
    monkeypatch.setattr(zoo, "ASSETS", tmp_path / "run")
    entry = zoo.Entry("tried", "composed", "model", "llama", "Apache-2.0", 1, "text", base=str(folder))
    monkeypatch.setitem(zoo.MODELS, "tried", entry)
    _, draft = load_pair(str(folder), "tried", device="cpu")
    assert draft.model.config.num_hidden_layers == 2
    ids = torch.tensor([[1, 50, 60, 70]])
    logits = draft.model(ids).logits[0]
    assert int(torch.isfinite(logits[0]).sum()) == len(trainer.kept)
    mine = trainer.forward.normed(trainer.forward.packed(ids[0], [4])) @ trainer.head.T
    assert (logits[:, trainer.kept] - mine).abs().max() < 0.05 * mine.abs().max()


def test_the_command_line_does_both_stages_and_goes_on(target, tmp_path, monkeypatch, capsys):
    from specviz.__main__ import main

    (tmp_path / "assets").mkdir()
    target.model.save_pretrained(tmp_path / "assets" / "lender")
    target.tokenizer.save_pretrained(tmp_path / "assets" / "lender")
    entry = zoo.Entry("lender", "assets", "lender", "llama", "Apache-2.0", 1, "text")
    monkeypatch.setattr(zoo, "ASSETS", tmp_path / "assets")
    monkeypatch.setitem(zoo.MODELS, "lender", entry)
    words = ["train", "distill", "--target", "lender", "--out", str(tmp_path / "run")]
    assert main([*words, "--only", "training", "--tokens", "512"]) == 2
    assert "no answers yet" in capsys.readouterr().err
    assert main([*words, "--only", "answers", "--prompts", "6"]) == 0
    assert not (tmp_path / "run" / "checkpoint.pt").exists()
    rest = ["--tokens", "512", "--batch-tokens", "256", "--contexts", "256", "--kept-layers", "0,5", "--head-tokens", "100"]
    assert main([*words, *rest, "--prompts", "6"]) == 0
    assert "picks the target's token" in capsys.readouterr().out
    assert main([*words, *rest, "--prompts", "6"]) == 2
    assert "--resume" in capsys.readouterr().err
    assert main([*words, "--resume", "--only", "training", "--tokens", "1024"]) == 0
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in log].count("change") == 1 and log[-1]["tokens"] == 1024
    assert main(["train", "ship", "--run", str(tmp_path / "run"), "--to", str(tmp_path / "shipped")]) == 0
    assert "python -m specviz train distill --target lender" in (tmp_path / "shipped" / "README.md").read_text()
