"""The second stage of a distillation from a model of the zoo: a draft of a few of the target's own layers learns its choices.

Embedding and head are the target's and stay as they are. The head is trimmed to the tokens that the target's answers hold
most often; the draft learns the target's distribution over those, from the states that were kept with the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from specviz.analysis.prompts import load_prompts
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel, encode_prompt
from specviz.training.answers import Answers
from specviz.training.batches import Answer, BatchModel, answer
from specviz.training.config import ModelShape, TrainConfig
from specviz.training.distill import choice_loss
from specviz.training.evaluate import iterations
from specviz.training.files import replace_folder
from specviz.training.forward import TrainingForward
from specviz.training.trainer import Trainer

TASKS = ("open-ended", "summarisation", "code")
MEASURED_TOKENS = 128  # of every held-out answer


@dataclass(frozen=True)
class Texts:
    """Answers in one array: ids, picks (total,) int64, states (total, hidden) fp16; starts (rows + 1,); prompts (rows,):
    how many tokens of each row are its prompt; fixed: tokens that all chat prompts begin with, from which nothing is learned."""

    ids: Tensor
    picks: Tensor
    states: Tensor
    starts: list[int]
    prompts: list[int]
    fixed: list[int]

    @classmethod
    def of(cls, rows: Sequence[Answer]) -> Texts:
        starts = [0, *np.cumsum([len(row.ids) for row in rows]).tolist()]
        first = [row.ids[: row.prompt].tolist() for row in rows]
        common = _common([ids for ids in first if ids[:2] == first[0][:2]])
        return cls(
            torch.from_numpy(np.concatenate([row.ids for row in rows]).astype(np.int64)),
            torch.from_numpy(np.concatenate([row.picks for row in rows]).astype(np.int64)),
            torch.from_numpy(np.concatenate([row.states for row in rows])),
            starts,
            [row.prompt for row in rows],
            [common if ids[:common] == first[0][:common] else 1 for ids in first],
        )

    def __len__(self) -> int:
        return len(self.prompts)

    def batch(self, rows: Sequence[int]) -> tuple[Tensor, list[int], Tensor]:
        """Some rows one behind the other: ids (n,), their lengths, and the places (m,) in ``ids`` that are learned from."""
        parts, lengths, places, begin = [], [], [], 0
        for row in rows:
            length = self.starts[row + 1] - self.starts[row] - 1  # behind the last token the target was not asked
            parts.append(self.ids[self.starts[row] : self.starts[row] + length])
            places.append(torch.arange(begin + min(self.fixed[row], length - 1), begin + length))
            lengths.append(length)
            begin += length
        return torch.cat(parts), lengths, torch.cat(places)

    def whole(self, rows: Sequence[int], places: Tensor, lengths: Sequence[int]) -> Tensor:
        """Where ``places`` of a batch are in ``ids``, ``picks`` and ``states``."""
        shift = torch.cat([
            torch.full((length,), self.starts[row] - begin)
            for row, length, begin in zip(rows, lengths, np.cumsum([0, *lengths[:-1]]).tolist(), strict=True)
        ])  # fmt: skip
        return places + shift[places]


def _common(rows: list[list[int]]) -> int:
    """How many tokens all rows begin with."""
    if len(rows) < 2:
        return 1
    length = 0
    while all(length < len(row) - 1 and row[length] == rows[0][length] for row in rows):
        length += 1
    return max(1, length)


def frequent(texts: Texts, count: int, vocabulary: int) -> Tensor:
    """The ``count`` ids that the target picks or writes most often, ascending. Of equally frequent ones the lowest: a
    tokenizer's merges come in the order of their frequency."""
    seen = torch.bincount(torch.cat((texts.picks, texts.ids)), minlength=vocabulary)
    return seen.argsort(descending=True, stable=True)[:count].sort().values


def take_layers(target: LlamaForCausalLM, layers: Sequence[int]) -> LlamaForCausalLM:
    """A model of copies of these layers of the target; embedding and head are the target's own and frozen."""
    depth = target.config.num_hidden_layers
    if not layers or any(not 0 <= layer < depth for layer in layers):
        raise UsageError(f"--kept-layers {','.join(map(str, layers))}: name layers of the target, 0 to {depth - 1}")
    config = deepcopy(target.config)
    config.num_hidden_layers = len(layers)
    draft = LlamaForCausalLM(config)
    with torch.no_grad():
        for mine, theirs in zip(draft.model.layers, layers, strict=True):
            mine.load_state_dict(target.model.layers[theirs].state_dict())
        draft.model.norm.load_state_dict(target.model.norm.state_dict())
    # Shared, not copied: they are never written to.
    draft.model.embed_tokens.weight = target.model.embed_tokens.weight
    draft.lm_head.weight = target.lm_head.weight
    return draft


class Measured:
    """Held-out text: answers kept out of the training, and the target's greedy answers to the shipped prompts."""

    def __init__(self, kept_out: Texts, prompts: Texts) -> None:
        self.kept_out, self.prompts = kept_out, prompts

    @torch.no_grad()
    def measure(self, forward: TrainingForward, head: Tensor, kept: Tensor) -> dict:
        """Loss against the target's picks and agreement with them on the answers kept out; over the shipped prompts, how many
        tokens would be drafted and accepted with lookahead 4."""
        loss = matches = count = 0
        for picked, logits, _ in _runs(self.kept_out, forward, head):
            place = torch.searchsorted(kept, picked).clamp_(max=len(kept) - 1)
            inside = kept[place] == picked
            loss += F.cross_entropy(logits[inside], place[inside], reduction="sum").item()
            matches += (kept[logits.argmax(-1)] == picked).sum().item()
            count += len(picked)
        drafted = accepted = agreeing = tokens = 0
        for match in match_rows(self.prompts, forward, head, kept):
            counts = iterations(match, 4)
            drafted, accepted = drafted + counts[0], accepted + counts[1]
            agreeing, tokens = agreeing + sum(match), tokens + len(match)
        return {
            "held_out_loss": round(loss / count, 4),
            "target_agreement": round(matches / count, 4),
            "prompts_agreement": round(agreeing / max(tokens, 1), 4),
            "prompts_drafted": drafted,
            "prompts_accepted": accepted,
        }


def _runs(texts: Texts, forward: TrainingForward, head: Tensor):
    """Picks, logits over the trimmed head, and how many of these each text has: of the answers alone, some at a time."""
    for begin in range(0, len(texts), 16):
        rows = range(begin, min(begin + 16, len(texts)))
        ids, lengths, _ = texts.batch(rows)
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        spans = [(start + texts.prompts[row] - 1, start + length) for row, start, length in zip(rows, starts, lengths, strict=True)]
        places = torch.cat([torch.arange(a, b) for a, b in spans])
        states = forward.packed(ids, lengths)[0, places]
        yield texts.picks[texts.whole(rows, places, lengths)], F.linear(forward.normed(states), head), [b - a for a, b in spans]


@torch.no_grad()
def match_rows(texts: Texts, forward: TrainingForward, head: Tensor, kept: Tensor) -> list[list[bool]]:
    """For every answer, at each of its tokens: does the draft pick what the target picks?"""
    return [
        match.tolist() for picked, logits, lengths in _runs(texts, forward, head)
        for match in (kept[logits.argmax(-1)] == picked).split(lengths)
    ]  # fmt: skip



class ShallowTrainer(Trainer):
    """A :class:`Trainer` of a draft whose batches are whole answers and whose target has spoken already."""

    def __init__(self, config: TrainConfig, folder: Path, target: LoadedModel, texts: Texts, measured: Measured) -> None:
        self.config, self.folder, self.device = config, folder, torch.device("cpu")
        self.tokenizer, self.texts, self.held_out = target.tokenizer, texts, _Bound(self, measured)
        self.model = take_layers(target.model, config.kept_layers).requires_grad_(False)
        for part in (self.model.model.layers, self.model.model.norm):
            part.requires_grad_(True)
        self.forward = TrainingForward(self.model)
        # Chosen anew when there are more answers: nothing of the head is trained.
        self.kept = frequent(texts, config.head_tokens, target.vocab_size)
        self.head = self.model.lm_head.weight.detach()[self.kept].contiguous()
        self.optimizer = torch.optim.AdamW(
            self._groups(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay, fused=True
        )
        self.step, self.seconds, self.own_texts = config.first_step, 0.0, None

    def rows(self, generator: torch.Generator) -> list[int]:
        """Answers at random until the step has its tokens."""
        chosen, tokens = [], 0
        while tokens < self.config.batch_tokens:
            row = int(torch.randint(0, len(self.texts), (1,), generator=generator))
            chosen.append(row)
            tokens += self.texts.starts[row + 1] - self.texts.starts[row]
        return chosen

    def loss(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        rows = self.rows(generator)
        ids, lengths, places = self.texts.batch(rows)
        normed = self.forward.normed(self.forward.packed(ids, lengths)[0, places])
        theirs = self.texts.states[self.texts.whole(rows, places, lengths)].float()
        loss, _ = choice_loss(self.head, normed, self.head, theirs, self.config.sharpness)
        return loss, loss.detach()

    def header(self) -> dict:
        trained = sum(weight.numel() for weight in self.model.parameters() if weight.requires_grad)
        return {"config": asdict(self.config), "parameters": trained, "head_tokens": len(self.kept), **self.data_facts()}

    def data_facts(self) -> dict:
        """How much text there is, and how many CPU threads read it."""
        measured = self.held_out.measured
        return {
            "answers": len(self.texts), "answer_tokens": len(self.texts.ids),
            "held_out_answers": len(measured.kept_out), "held_out_prompts": len(measured.prompts),
            "threads": torch.get_num_threads(),
        }  # fmt: skip

    def log_changes(self, before: TrainConfig) -> None:
        super().log_changes(before)
        self.log({"kind": "data", "step": self.step, **self.data_facts()})

    def state(self) -> dict:
        state = super().state()
        state["model"] = {name: value for name, value in state["model"].items() if _own(name)}
        return state

    def restore(self, state: dict) -> None:
        super().restore({**state, "model": {**self.model.state_dict(), **state["model"]}})

    def save_model(self) -> None:
        """The draft's own weights in bf16, its configuration, and the ids of its head."""
        replace_folder(self.folder / "model", self._write)

    def _write(self, folder: Path) -> None:
        weights = {
            name: value.to(torch.bfloat16).contiguous() for name, value in self.model.state_dict().items() if _own(name)
        }
        weights["head_ids"] = self.kept.to(torch.int32)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        config = deepcopy(self.model.config)
        config.architectures, config.dtype = ["LlamaForCausalLM"], "float32"
        config.save_pretrained(folder)


class _Bound:
    """What ``Trainer.evaluate`` asks, with the head that the draft is measured with."""

    def __init__(self, trainer: ShallowTrainer, measured: Measured) -> None:
        self.trainer, self.measured = trainer, measured

    def measure(self, forward: TrainingForward) -> dict:
        return self.measured.measure(forward, self.trainer.head, self.trainer.kept)


def _own(name: str) -> bool:
    """Whether a weight is the draft's own, not borrowed from the target."""
    return ".layers." in name or name == "model.norm.weight"


def prompt_answers(folder: Path, target: LoadedModel, count: int = 0) -> Texts:
    """The target's greedy answers to the shipped prompts of the three tasks, written once and kept in ``folder``."""
    answers = Answers(folder / "prompts")
    prompts = [prompt for task in TASKS for prompt in load_prompts(task)][: count or None]
    if not answers.written():
        answers.folder.mkdir(parents=True, exist_ok=True)
        ids = [encode_prompt(target, prompt.text, chat=prompt.form == "instruction") for prompt in prompts]
        rows = answer(
            BatchModel(target.model), ids, [0.0] * len(ids), MEASURED_TOKENS, target.eos_ids, torch.Generator().manual_seed(0)
        )
        answers.save(0, rows, [(prompt, 0.0) for prompt in map(_Kind, prompts)])
    return Texts.of([row for _, _, row in answers.load(0)])


@dataclass(frozen=True)
class _Kind:
    prompt: object

    @property
    def kind(self) -> str:
        return self.prompt.task


KEEP_OUT = 20  # of so many families of answers, about one is kept out of the training


def family(kind: str, row: Answer, tokenizer) -> str:
    """What relatives have in common: the first words of an answer, and of the text whose summary is asked for."""
    if kind == "summary":
        text = tokenizer.decode(row.ids[: row.prompt].tolist()).partition("\n\n")[2]
    else:
        text = tokenizer.decode(row.ids[row.prompt :].tolist(), skip_special_tokens=True)
    return " ".join(text.split()[:8])


def split_families(rows: Sequence[tuple[str, float, Answer]], tokenizer) -> tuple[list[Answer], list[Answer]]:
    """Answers to learn from, and answers kept out: never some of a family here and some there.

    The same families are kept out when there are more answers, so that a resumed training isn't measured on what it saw."""
    places = [crc32(family(kind, row, tokenizer).encode()) for kind, _, row in rows]
    out = {place for place in places if place % KEEP_OUT == 0} or {min(places, default=0)}
    train = [row for place, (_, _, row) in zip(places, rows, strict=True) if place not in out]
    return train, [row for place, (_, _, row) in zip(places, rows, strict=True) if place in out]


def shallow_trainer(config: TrainConfig, folder: Path, answers_folder: Path, target: LoadedModel) -> ShallowTrainer:
    """Everything for the second stage, over the answers that are there. UsageError where there are none."""
    answers = Answers(answers_folder / "answers")
    rows = [entry for number in range(answers.written()) for entry in answers.load(number)]
    train, kept_out = split_families([entry for entry in rows if len(entry[2].ids) > entry[2].prompt + 8], target.tokenizer)
    if not train:
        raise UsageError(f"{answers.folder}: no answers yet: run the command without --only")
    measured = Measured(Texts.of(kept_out[:160]), prompt_answers(answers_folder, target))
    model = target.model.config
    shape = ModelShape(len(config.kept_layers), model.hidden_size, model.intermediate_size, model.num_attention_heads, model.vocab_size)
    return ShallowTrainer(replace(config, shape=shape), folder, target, Texts.of(train), measured)
