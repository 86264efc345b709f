"""Prompt sets: the shipped ones by name, or a file of one's own. Standard library only.

A set is a JSONL file, one prompt a line: ``{"id": …, "task": …, "language": …, "form": …, "text": …}``; only ``text`` is
needed. A file with another ending than .jsonl is read as plain text, one prompt a line.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from specviz.errors import UsageError

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "prompts"
SETS = ("open-ended", "summarisation", "code", "japanese")
FORMS = ("instruction", "prefix")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. form: an "instruction" is put to a chat model through its template; a "prefix" is text (or code) that
    is to be continued as it stands, so no template belongs around it."""

    id: str
    task: str
    language: str
    text: str
    form: str = "instruction"


def load_prompts(source: str | os.PathLike[str], form: str | None = None) -> tuple[Prompt, ...]:
    """The prompts of a shipped set ("open-ended", "summarisation", "code", "japanese"), of "all", or of a file.

    form: only prompts of this form. UsageError where there is no such set or file, or a line cannot be read.
    """
    if form is not None and form not in FORMS:
        raise UsageError(f"form={form!r}: choose one of {', '.join(FORMS)}")
    if source == "all":
        prompts = tuple(prompt for name in SETS for prompt in _read(FOLDER / f"{name}.jsonl"))
    elif source in SETS:
        prompts = _read(FOLDER / f"{source}.jsonl")
    else:
        path = Path(source)
        if not path.is_file():
            raise UsageError(f"prompts {os.fspath(source)!r}: no such file, and no set of that name ({', '.join(SETS)}, all)")
        prompts = _read(path)
    return tuple(prompt for prompt in prompts if form is None or prompt.form == form)


def _read(path: Path) -> tuple[Prompt, ...]:
    try:
        # Only line feeds end a line: a prompt may hold any other character.
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path.name}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise UsageError(f"{path.name}: {error.strerror}") from None
    prompts: list[Prompt] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        prompt = _from_json(line, where, number, path.stem) if path.suffix == ".jsonl" else None
        prompt = prompt or Prompt(f"{path.stem}-{number}", path.stem, "", line.rstrip("\r"))
        if prompt.id in seen:
            raise UsageError(f"{where}: the id {prompt.id!r} is that of line {seen[prompt.id]} too")
        seen[prompt.id] = number
        prompts.append(prompt)
    if not prompts:
        raise UsageError(f"{path.name}: holds no prompt")
    return tuple(prompts)


def _from_json(line: str, where: str, number: int, name: str) -> Prompt:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error})") from None
    if not isinstance(data, dict) or not isinstance(data.get("text"), str) or not data["text"]:
        raise UsageError(f"{where}: an object with a \"text\" is needed")
    values = {key: data.get(key, default) for key, default in (
        ("id", f"{name}-{number}"), ("task", name), ("language", ""), ("form", "instruction"),
    )}  # fmt: skip
    for key, value in values.items():
        if not isinstance(value, str):
            raise UsageError(f"{where}: \"{key}\" must be text")
    if values["form"] not in FORMS:
        raise UsageError(f"{where}: \"form\" is {values['form']!r}, one of {', '.join(FORMS)} is needed")
    return Prompt(text=data["text"], **values)
