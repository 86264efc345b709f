"""The arguments that choose a set of prompts, shared by the commands that measure over one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from specviz.analysis.prompts import Prompt, load_prompts
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel, encode_prompt


def add_prompt_arguments(parser: argparse.ArgumentParser, sets: str, default: str) -> None:
    """sets: the shipped sets, in words."""
    parser.add_argument("--prompts", metavar="FILE", default=default, help=f"a JSONL or text file, or a shipped set: {sets}")
    parser.add_argument("--prompt-form", choices=("instruction", "prefix"), help="only prompts of this form")
    parser.add_argument("--most-prompts", type=int, default=4, help="take the first so many prompts (default 4)")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="most tokens of a run (default 64)")
    parser.add_argument("--no-chat", action="store_true", help="leave the model's chat template out")


def check_counts(args: argparse.Namespace) -> None:
    """UsageError where there is to be nothing to run."""
    for name in ("most_prompts", "max_new_tokens", "repetitions"):
        if getattr(args, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(args, name)}: choose 1 or more")


def chosen_prompts(args: argparse.Namespace, source: str) -> tuple[Prompt, ...]:
    """The prompts of a set or file that the arguments ask for. UsageError where there is none."""
    found = load_prompts(source, args.prompt_form)[: args.most_prompts]
    if not found:
        raise UsageError(f"--prompts {source}: no prompt of the form {args.prompt_form}")
    return found


def encoded(prompts: Sequence[Prompt], target: LoadedModel, chat: bool) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """(id, token ids) of each; instructions through the chat template where ``chat`` allows it."""
    return tuple((p.id, tuple(encode_prompt(target, p.text, chat=chat and p.form == "instruction"))) for p in prompts)
