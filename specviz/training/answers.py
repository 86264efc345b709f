"""The first stage of a distillation: the target answers prompts of our own, group by group, and the answers are kept.

A group depends on the settings, its number and the groups before it alone, so a run that was stopped goes on with the very
answers that an unbroken one gives. Every third group asks for summaries of what earlier groups wrote.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from zipfile import BadZipFile

import numpy as np
import torch

from specviz.errors import UsageError
from specviz.models.loading import LoadedModel, encode_prompt
from specviz.training.batches import Answer, BatchModel, answer
from specviz.training.files import write_atomically
from specviz.training.progress import Progress
from specviz.training.questions import Question, questions, summary_of

SUMMARY_EVERY = 3  # of so many groups, the last one asks for summaries
CODE_SHARE = 0.35  # of the other groups: Python functions, asked for or begun
PASSAGE = (400, 800)  # characters of a text that is to be summarised
HEATS = (0.0, 0.0, 0.3, 0.7)  # temperatures, in turn; prompts that come again are always sampled


@dataclass(frozen=True)
class AnswerSettings:
    """What decides the answers. group: prompts a group; limit: tokens an answer at most."""

    target: str
    prompts: int = 5760
    group: int = 192
    limit: int = 144
    seed: int = 0

    @property
    def groups(self) -> int:
        return -(-self.prompts // self.group)


def group_questions(settings: AnswerSettings, number: int, answers: Answers, tokenizer) -> list[tuple[Question, float]]:
    """The prompts of a group and the temperature each is answered with."""
    size = min(settings.group, settings.prompts - number * settings.group)
    turn = Random(f"{settings.seed} {number}")
    if number % SUMMARY_EVERY == SUMMARY_EVERY - 1:
        passages = answers.passages(tokenizer, number)
        if passages:
            chosen = [passages[turn.randrange(len(passages))] for _ in range(size)]
            return [(summary_of(text, turn.randrange(100)), HEATS[row % len(HEATS)]) for row, text in enumerate(chosen)]
    before = sum(1 for other in range(number) if other % SUMMARY_EVERY != SUMMARY_EVERY - 1) * settings.group
    pools = questions(settings.seed)
    coding = [entry for pair in zip(pools["code"], pools["prefix"], strict=False) for entry in pair]
    coding += pools["code"][len(pools["prefix"]) :]
    code = round(CODE_SHARE * size)
    found = []
    for row in range(size):
        pool, place = (coding, before * CODE_SHARE + row) if row < code else (pools["open"], before * (1 - CODE_SHARE) + row - code)
        again, place = divmod(int(place), len(pool))
        found.append((pool[place], 0.7 if again else HEATS[row % len(HEATS)]))
    return found


class Answers:
    """The folder with the groups that are written: ``00000.npz``, ``00001.npz``, … and ``settings.json``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._texts: dict[int, list[str]] = {}

    def path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.npz"

    def written(self) -> int:
        """How many groups there are, from the first one on."""
        number = 0
        while self.path(number).exists():
            number += 1
        return number

    def save(self, number: int, rows: list[Answer], asked: list[tuple[Question, float]]) -> None:
        whole = {
            "ids": np.concatenate([row.ids for row in rows]),
            "picks": np.concatenate([row.picks for row in rows]),
            "states": np.concatenate([row.states for row in rows]),
            "lengths": np.array([len(row.ids) for row in rows], dtype=np.int32),
            "prompts": np.array([row.prompt for row in rows], dtype=np.int32),
            "temperatures": np.array([heat for _, heat in asked], dtype=np.float32),
            "kinds": np.array([question.kind for question, _ in asked]),
        }
        write_atomically(self.path(number), lambda stream: np.savez(stream, **whole))

    def load(self, number: int) -> list[tuple[str, float, Answer]]:
        """The answers of a group, each with its kind and temperature. UsageError where the file is damaged."""
        try:
            with np.load(self.path(number)) as whole:
                parts = {name: whole[name] for name in whole.files}
            ends = parts["lengths"].cumsum()
            return [
                (str(kind), float(heat), Answer(
                    parts["ids"][end - size : end], int(prompt), parts["states"][end - size : end], parts["picks"][end - size : end]
                ))
                for kind, heat, end, size, prompt in zip(
                    parts["kinds"], parts["temperatures"], ends, parts["lengths"], parts["prompts"], strict=True
                )
            ]  # fmt: skip
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise UsageError(f"{self.path(number)}: damaged ({error}): delete it and run the command again") from None

    def passages(self, tokenizer, before: int) -> list[str]:
        """Whole sentences of the answers in the groups before ``before``, each fit to be summarised."""
        found = []
        for number in range(before):
            if number not in self._texts:
                self._texts[number] = [
                    passage for kind, _, row in self.load(number) if kind == "open"
                    and (passage := _sentences(tokenizer.decode(row.ids[row.prompt :].tolist(), skip_special_tokens=True)))
                ]
            found += self._texts[number]
        return found

    def check(self, settings: AnswerSettings) -> None:
        """Remember the settings; UsageError where the folder holds answers of another kind."""
        path, wanted = self.folder / "settings.json", asdict(settings)
        self.folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            old = json.loads(path.read_text())
            if {**old, "prompts": 0} != {**wanted, "prompts": 0}:
                raise UsageError(f"{self.folder} holds answers with other settings ({old}): choose another --out")
            if any(self.written() > (count // settings.group) for count in (old["prompts"], settings.prompts) if count != settings.prompts):
                raise UsageError(f"{self.folder}: its last group is smaller than the others; choose another --out, or a multiple of {settings.group} prompts")
        write_atomically(path, lambda stream: stream.write((json.dumps(wanted, indent=2) + "\n").encode()))


def _sentences(text: str) -> str:
    """The first sentences of a text, of PASSAGE characters; nothing where there are too few."""
    text = " ".join(text.split())[: PASSAGE[1]]
    end = text.rfind(". ") if len(text) == PASSAGE[1] else text.rfind(".")
    return text[: end + 1] if end + 1 >= PASSAGE[0] else ""


def write_answers(settings: AnswerSettings, folder: Path, target: LoadedModel, quiet: bool = False) -> Answers:
    """Let the target answer all prompts that are not answered yet. UsageError when the disk is full; what was written stays."""
    answers = Answers(folder)
    answers.check(settings)
    done = answers.written()
    if done >= settings.groups:
        return answers
    model = BatchModel(target.model)
    progress = Progress(settings.prompts, done * settings.group, quiet, unit="answers")
    for number in range(done, settings.groups):
        asked = group_questions(settings, number, answers, target.tokenizer)
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + number)
        prompts = [encode_prompt(target, question.text, chat=question.chat) for question, _ in asked]
        rows = answer(model, prompts, [heat for _, heat in asked], settings.limit, target.eos_ids, generator)
        answers.save(number, rows, asked)
        progress.update(len(rows), note=f"{sum(len(row.ids) for row in rows)} tokens in the last {len(rows)}")
    progress.close()
    return answers
