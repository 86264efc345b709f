"""What is shipped of a draft of the target's own layers: it loads, and its card says what was measured."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
import torch

from specviz.bench.report import race_of_draft
from specviz.decoding import MethodConfig, build, check_run, decode
from specviz.errors import UsageError
from specviz.models import zoo
from specviz.models.loading import load_pair
from specviz.trace import Trace
from specviz.training import ship_shallow as module
from specviz.training.answers import write_answers
from specviz.training.shallow import shallow_trainer
from specviz.training.ship_shallow import best_dynamic, measured, predicted_dynamic, ship_shallow
from tests.analysis.test_cost import known_costs
from tests.tiny import tiny_model
from tests.training.test_shallow import CONFIG, SETTINGS, few_prompts  # noqa: F401

ASSETS = zoo.ASSETS
SHIPPED = ASSETS / "smollm2-draft"


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    target = tiny_model("llama", chat=True, max_position_embeddings=4096)
    folder = tmp_path / "target"
    target.model.save_pretrained(folder)
    target.tokenizer.save_pretrained(folder)
    config = replace(CONFIG, target=str(folder))
    write_answers(replace(SETTINGS, target=str(folder)), tmp_path / "answers", target, quiet=True)
    shallow_trainer(config, tmp_path / "run", tmp_path, target).run(quiet=True)
    report = ship_shallow(tmp_path / "run", tmp_path / "assets" / "shipped", tmp_path, machine="a machine", timed=False, int8=False)
    monkeypatch.setattr(zoo, "ASSETS", tmp_path / "assets")
    entry = zoo.Entry("shipped", "composed", "shipped", "llama", "Apache-2.0", 1, "text", base=str(folder))
    monkeypatch.setitem(zoo.MODELS, "shipped", entry)
    return report, tmp_path / "assets" / "shipped", folder


def test_the_shipped_draft_accepts_what_its_card_says(shipped):
    report, folder, base = shipped
    card = (folder / "README.md").read_text()
    assert report["sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert report["sha256"] in card and "# shipped\n" in card and "a machine" in card
    target, draft = load_pair(str(base), "shipped", device="cpu")
    texts = module.prompt_answers(folder.parents[1], target)
    drafted = accepted = 0
    for row, prompt in enumerate(texts.prompts):
        ids = texts.ids[texts.starts[row] : texts.starts[row + 1]].tolist()
        trace = Trace.collect(decode(ids[:prompt], build(MethodConfig("constant", lookahead=4), target, draft), 128))
        assert list(trace.output_ids) == ids[prompt:] and check_run(trace, target).identical
        left = len(ids) - prompt
        for iteration in trace.iterations:
            # A draft ends at an end of text; what would have come behind it cannot be accepted, and is counted as drafted.
            size = min(4, left - 1)
            assert len(iteration.draft) == size or iteration.draft[-1].id in target.eos_ids
            drafted, accepted, left = drafted + size, accepted + iteration.accepted, left - iteration.accepted - 1
    four = report["lookaheads"][3]
    assert (four["drafted"], four["accepted"]) == (drafted, accepted)


def test_a_draft_in_8_bits_is_measured_in_8_bits(shipped):
    report, folder, base = shipped
    again = ship_shallow(folder.parents[1] / "run", folder.parents[1] / "assets" / "again", folder.parents[1], "a machine", timed=False)
    assert again["sha256"] == report["sha256"] and (again["bits"], report["bits"]) == (8, 32)
    assert "in 8 bits" in (folder.parent / "again" / "README.md").read_text()
    one, other = again["lookaheads"][3], report["lookaheads"][3]
    assert abs(one["accepted"] - other["accepted"]) <= 0.1 * other["drafted"]


def race(path, draft: str = "again:int8", digest: str = "same", method: str = "constant"):
    """A measurement as ``bench --out`` writes it: two prompts, two repetitions, the draft half as fast again."""
    rows = [{"setting": {"draft": draft, "threads": 2, "limit": 64, "prompts": {"a": "1", "b": "2"}}}]
    for engine, name, seconds, out in (("specviz autoregressive", "autoregressive", 3.0, "same"), ("specviz fast", method, 2.0, digest)):
        for prompt in "ab":
            for turn in range(2):
                rows.append({
                    "engine": engine, "family": "ours", "method": name, "prompt": prompt, "repetition": turn, "tokens": 64,
                    "seconds": seconds, "digest": out, "drafted": 40 * (name != "autoregressive"), "accepted": 10, "iterations": 50,
                })  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_what_a_race_measured_is_on_the_card(shipped, tmp_path):
    base = shipped[1].parents[1]
    again = base / "assets" / "again"
    report = ship_shallow(base / "run", again, base, "a machine", timed=False, int8=False, bench=race_of_draft(race(tmp_path / "race.jsonl"), "again"))
    (row,) = report["bench"]["methods"]
    assert row["ratio"] == row["low"] == row["high"] == 1.5 and row["acceptance"] == 0.25 and row["runs"] == 4
    assert report["bench"]["repetitions"] == 2
    assert "| fast | 1.50 (1.50..1.50) | 25.0% | 4 |" in (again / "README.md").read_text()


@pytest.mark.parametrize("given", [{"draft": "other"}, {"digest": "different"}, {"method": "autoregressive"}])
def test_a_race_of_something_else_is_refused(given, tmp_path):
    with pytest.raises(UsageError, match="--bench"):
        race_of_draft(race(tmp_path / "race.jsonl", **given), "again")
    for text in (None, "not a measurement\n"):
        path = tmp_path / "other.jsonl"
        path.write_text(text) if text else path.unlink(missing_ok=True)
        with pytest.raises(UsageError, match="other.jsonl"):
            race_of_draft(path, "again")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"kind": "run", "threads": 1}, {"kind": "data", "threads": 2}], " (1 to 2 CPU threads)"),
        ([{"kind": "run", "threads": 1}], " (1 CPU thread)"),
        ([{"kind": "run"}, {"kind": "data", "threads": 2}], ""),
    ],
)
def test_the_card_tells_the_threads_where_the_log_knows_them(rows, words):
    from specviz.training.shallow_card import _threads

    assert _threads(rows) == words


def test_counts_of_a_lookahead_follow_from_the_matches():
    rows = measured([[True, True, False, True], [False, False]], None)
    one = rows[0]
    assert (one["lookahead"], one["drafted"], one["accepted"], one["tokens"]) == (1, 3, 1, 6)
    assert rows[1]["accepted"] >= one["accepted"] and rows[1]["forwards"] <= one["forwards"]


def test_the_dynamic_method_is_predicted_from_matches_and_confidences():
    costs = known_costs(draft="d")
    plain = costs.plain_token()
    # Sure and right everywhere: two drafts and one token more each time. Never sure: one draft, whatever the lookahead.
    sure = predicted_dynamic([[True] * 9], [[0.9] * 9], costs, 2, 0.5)
    assert sure == pytest.approx(9 * plain / (3 * float(costs.drafting(None, 2) + costs.verifying(None, 2) + costs.loop(2))))
    assert predicted_dynamic([[True] * 9], [[0.1] * 9], costs, 8, 0.5) == pytest.approx(predicted_dynamic([[True] * 9], [[0.9] * 9], costs, 1, 0.5))
    # What is unsure is wrong here, and what is sure is right: stopping there is the best that can be done.
    match, belief = [[True, False, False] * 20], [[0.9, 0.2, 0.2] * 20]
    found = best_dynamic(match, belief, costs)
    assert found["predicted_ratio"] >= round(predicted_dynamic(match, belief, costs, 8, 0.0), 3)


@pytest.mark.skipif(not (SHIPPED / "config.json").is_file(), reason="the draft for SmolLM2 is not shipped")
def test_the_draft_for_smollm2_is_what_its_card_says():
    from safetensors.torch import load_file

    card, report = (SHIPPED / "README.md").read_text(), json.loads((SHIPPED / "evaluation.json").read_text())
    path = SHIPPED / "model.safetensors"
    assert path.stat().st_size < 30e6
    assert hashlib.sha256(path.read_bytes()).hexdigest() == report["sha256"] and report["sha256"] in card
    assert report["prompts"] >= 60
    four = report["lookaheads"][3]
    assert f"{four['accepted']} of {four['drafted']}" in card and f"{report['target_agreement']:.1%} on held-out" in card
    asked = json.loads((SHIPPED / "generation_config.json").read_text())
    assert asked["num_assistant_tokens"] == report["dynamic"]["lookahead"]
    assert asked["assistant_confidence_threshold"] == report["dynamic"]["threshold"]
    weights = load_file(path)
    ids = weights.pop("head_ids")
    assert len(ids) == len(set(ids.tolist())) and int(ids.max()) < 49152
    assert {value.dtype for value in weights.values()} == {torch.bfloat16}
    config = json.loads((SHIPPED / "config.json").read_text())
    layers = config["num_hidden_layers"]
    borrowed = 49152 * 576
    assert sum(value.numel() for value in weights.values()) + borrowed == zoo.MODELS["smollm2-draft"].parameters
    assert layers == len(json.loads((SHIPPED / "training_log.jsonl").read_text().splitlines()[0])["config"]["kept_layers"])
    rows = [json.loads(line) for line in (SHIPPED / "training_log.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["kind"] == "evaluation"][-1]
    assert last["target_agreement"] == report["target_agreement"] and str(path.parents[3]) not in card
