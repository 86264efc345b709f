"""Put a finished draft of a target's own layers where the zoo finds it: weights, log, measurements, card."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from specviz.analysis.cost import Costs
from specviz.analysis.prompts import load_prompts
from specviz.analysis.timing import measure_costs
from specviz.errors import UsageError
from specviz.models.int8 import quantised
from specviz.models.loading import LoadedModel, load_model, wrap
from specviz.models.streams import open_stream
from specviz.models.trimmed import trim
from specviz.training.answers import Answers, AnswerSettings
from specviz.training.config import TrainConfig
from specviz.training.evaluate import iterations
from specviz.training.files import replace_folder
from specviz.training.shallow import TASKS, Texts, prompt_answers, take_layers
from specviz.training.shallow_card import card
from specviz.training.ship import machine_text, sha256

LOOKAHEADS = range(1, 7)
DYNAMIC_LOOKAHEADS = (2, 3, 4, 6, 8)
THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def load_draft(run: Path, config: TrainConfig, target: LoadedModel) -> LoadedModel:
    """The draft of a run, under its trimmed head. UsageError where there is none."""
    path = run / "model" / "model.safetensors"
    if not path.exists():
        raise UsageError(f"{run}: no model here yet")
    weights = load_file(path)
    ids = weights.pop("head_ids").long()
    model = take_layers(target.model, config.kept_layers)
    model.load_state_dict({**model.state_dict(), **{name: value.float() for name, value in weights.items()}})
    trim(model, ids)
    return wrap(model, target.tokenizer, "draft")


def measured(matches: Sequence[Sequence[bool]], costs: Costs | None) -> list[dict]:
    """For each constant lookahead: drafted, accepted, tokens and target forwards over all answers, and, with costs, the
    speed over plain decoding that they predict."""
    found = []
    for lookahead in LOOKAHEADS:
        drafted = accepted = forwards = 0
        for match in matches:
            counts = iterations(match, lookahead)
            drafted, accepted, forwards = drafted + counts[0], accepted + counts[1], forwards + counts[2]
        row = {"lookahead": lookahead, "drafted": drafted, "accepted": accepted, "forwards": forwards}
        row["tokens"] = sum(map(len, matches))
        if costs:
            each = float(costs.drafting(None, lookahead) + costs.verifying(None, lookahead) + costs.loop(lookahead))
            row["predicted_ratio"] = round(row["tokens"] * costs.plain_token() / (forwards * each), 3)
        found.append(row)
    return found


@torch.inference_mode()
def stream_matches(texts: Texts, draft: LoadedModel) -> tuple[list[list[bool]], list[list[float]]]:
    """At each token of every answer, by the layers that a draft decodes with: does it pick what the target picks, and
    with what probability?"""
    matches, confidences = [], []
    for row, prompt in enumerate(texts.prompts):
        part = slice(texts.starts[row], texts.starts[row + 1] - 1)
        sure, picks = open_stream(draft).forward(texts.ids[part])[prompt - 1 :].softmax(-1).max(-1)
        matches.append((picks == texts.picks[part][prompt - 1 :]).tolist())
        confidences.append(sure.tolist())
    return matches, confidences


def predicted_dynamic(
    matches: Sequence[Sequence[bool]], confidences: Sequence[Sequence[float]], costs: Costs, lookahead: int, threshold: float
) -> float:
    """The speed over plain decoding that the costs predict for the dynamic method.

    What a draft believes behind a miss is not known: it is taken to believe what it does behind the right token."""
    seconds, tokens = 0.0, 0
    sizes = np.arange(lookahead + 1)
    of_size = (costs.drafting(None, sizes) + costs.verifying(None, sizes) + costs.loop(sizes)).tolist()
    for match, sure in zip(matches, confidences, strict=True):
        place = 0
        while place < len(match):
            most = min(lookahead, len(match) - place - 1)
            size = next((n + 1 for n in range(most) if sure[place + n] < threshold), most)
            right = next((n for n in range(size) if not match[place + n]), size)
            seconds += of_size[size]
            place += right + 1
        tokens += len(match)
    return tokens * costs.plain_token() / seconds


def best_dynamic(matches: Sequence[Sequence[bool]], confidences: Sequence[Sequence[float]], costs: Costs) -> dict:
    """Lookahead and threshold with the best predicted speed."""
    return max(
        ({"lookahead": lookahead, "threshold": threshold,
          "predicted_ratio": round(predicted_dynamic(matches, confidences, costs, lookahead, threshold), 3)}
         for lookahead in DYNAMIC_LOOKAHEADS for threshold in THRESHOLDS),
        key=lambda row: row["predicted_ratio"],
    )  # fmt: skip


def ship_shallow(
    run: Path, to: Path, answers: Path, machine: str | None = None, timed: bool = True, int8: bool = True,
    bench: dict | None = None,
) -> dict:
    """Copy the draft of ``run`` to the folder ``to`` with its log, ``evaluation.json`` and card; returns the evaluation.

    answers: the folder with the target's answers. timed: measure what a draft step and a verification cost here. int8:
    measure the draft with 8-bit weights, as the zoo loads it on a CPU; what is shipped is the same. bench: what
    ``bench.report.race_of_draft`` tells of this very draft, for the card.
    """
    config = TrainConfig.load(run / "config.json")
    target = load_model(config.target, device="cpu")
    draft = load_draft(run, config, target)
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    for row in rows:
        for settings in (row, row.get("config", {})):
            settings.pop("weights", None)
    texts = prompt_answers(answers, target)
    ids = draft.model.lm_head.ids
    draft = quantised(draft) if int8 else draft
    matches, confidences = stream_matches(texts, draft)
    tasks = [prompt.task for task in TASKS for prompt in load_prompts(task)][: len(texts)]
    costs = measure_costs(target, draft) if timed else None
    last = [row for row in rows if row["kind"] == "evaluation"][-1]
    report = {
        "prompts": len(texts),
        "bits": 8 if int8 else 32,
        "tokens": last["tokens"],
        "seconds": last["seconds"],
        "held_out_loss": last["held_out_loss"],
        "target_agreement": last["target_agreement"],
        "prompts_agreement": round(sum(map(sum, matches)) / sum(map(len, matches)), 4),
        "lookaheads": measured(matches, costs),
        "tasks": {
            task: measured([match for match, other in zip(matches, tasks, strict=True) if other == task], None)[3]
            for task in dict.fromkeys(tasks)
        },
        "head_coverage": coverage(texts, ids),
    }
    if costs:
        report["dynamic"] = best_dynamic(matches, confidences, costs)
        report["costs_ms"] = {
            "plain_token": round(1e3 * costs.plain_token(), 2), "draft_step": round(1e3 * costs.draft_forward(None), 2),
            "first": round(1e3 * costs.drafting(None, 1).item() - 1e3 * costs.draft_forward(None), 2),
            "verify": {str(n): round(1e3 * float(costs.verify(n)), 2) for n in range(1, 6)},
            "threads": costs.threads, "stream": costs.stream, "load": costs.load,
        }  # fmt: skip
    if bench:
        report["bench"] = bench
    settings = AnswerSettings(**json.loads((answers / "answers" / "settings.json").read_text()))
    count = Answers(answers / "answers").written()

    def write(folder: Path) -> None:
        shutil.copytree(run / "model", folder, dirs_exist_ok=True)
        (folder / "training_log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        report["sha256"] = sha256(folder / "model.safetensors")
        if costs:  # how to use it, where transformers, the command line and the page look
            (folder / "generation_config.json").write_text(json.dumps({
                "num_assistant_tokens": report["dynamic"]["lookahead"], "num_assistant_tokens_schedule": "constant",
                "assistant_confidence_threshold": report["dynamic"]["threshold"],
            }, indent=2) + "\n")  # fmt: skip
        (folder / "evaluation.json").write_text(json.dumps(report, indent=2) + "\n")
        (folder / "README.md").write_text(card(to.name, config, rows, report, settings, count, machine or machine_text()))

    replace_folder(to, write)
    return report


@torch.no_grad()
def coverage(texts: Texts, ids: torch.Tensor) -> float:
    """Share of the tokens of the target's answers that are in a trimmed head."""
    inside = total = 0
    for row, prompt in enumerate(texts.prompts):
        part = texts.ids[texts.starts[row] + prompt : texts.starts[row + 1]]
        inside, total = inside + int(torch.isin(part, ids).sum()), total + len(part)
    return round(inside / total, 4)
