"""``python -m specviz decode``: decode a prompt and show what was drafted, accepted and refused."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import deque
from contextlib import nullcontext
from pathlib import Path

from specviz.analysis.account import account
from specviz.commands._models import add_model_arguments, load_models
from specviz.commands._progress import Printer
from specviz.commands._terminal import StripPrinter, summary_rows, table
from specviz.decoding import (
    FULL_DETAIL,
    METHODS,
    Check,
    Detail,
    MethodConfig,
    Sampling,
    build,
    check_run,
    decode,
)
from specviz.errors import UsageError
from specviz.models.cores import share_cores
from specviz.models.loading import LoadedModel, encode_prompt
from specviz.trace import Trace, TraceWriter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_method_arguments(parser)
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", help="the text to continue or to answer; - reads standard input")
    prompt.add_argument("--prompt-file", type=Path, help="a text file with the prompt")
    parser.add_argument("--max-new-tokens", type=int, default=128, help="most tokens to add (default 128)")
    parser.add_argument("--no-chat", action="store_true", help="leave the model's chat template out")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="also decode with the target alone and compare")
    parser.add_argument("--full", action="store_true", help="record entropies and alternatives for each token")
    parser.add_argument("--out", type=Path, help="write the log to this JSONL file")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the live text")


def add_method_arguments(parser: argparse.ArgumentParser) -> None:
    """The method's parameters, under our names and those of transformers."""
    lines = "; ".join(f"{name}: {spec.summary}" for name, spec in METHODS.items())
    parser.add_argument("--method", choices=METHODS, metavar="METHOD", help=lines)
    parser.add_argument("--lookahead", "--num-assistant-tokens", "--prompt-lookup-num-tokens", type=int,
                        help="most drafted tokens in one iteration")
    parser.add_argument("--threshold", "--assistant-confidence-threshold", type=float,
                        help="confidence (0..1) below which drafting stops")
    parser.add_argument("--exit-layer", "--assistant-early-exit", type=int,
                        help="number of first layers that draft")
    parser.add_argument("--ngram", "--max-matching-ngram-size", type=int, help="longest n-gram of prompt lookup")
    parser.add_argument("--num-assistant-tokens-schedule", choices=("constant", "heuristic", "dynamic"),
                        help="transformers' word for the method")


SMALL = 50_000_000  # weights; a larger model's first tokens are not much slower than the others
WARM_UP = 24  # tokens


def method_config(args: argparse.Namespace, draft: LoadedModel | None, default: str) -> MethodConfig:
    """The method that was asked for; without a word about it, the draft model's own generation config decides."""
    given = {
        "method": args.method,
        "num_assistant_tokens_schedule": args.num_assistant_tokens_schedule,
        "lookahead": args.lookahead,
        "threshold": args.threshold,
        "exit_layer": args.exit_layer,
        "ngram": args.ngram,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if not given and draft is not None:
        return MethodConfig.from_generation_config(draft.model.generation_config)
    if not given.keys() - {"lookahead", "threshold"}:
        given["method"] = "dynamic" if draft is not None else default
    return MethodConfig.from_names(given)


def run(args: argparse.Namespace) -> int:
    prompt = _prompt(args)
    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.seed)
    with Printer() as progress:
        target, draft, offered = load_models(args, progress)
    share_cores(target, draft)
    config = method_config(args, draft, offered)
    method = build(config, target, draft)
    if args.check and not sampling.greedy:
        raise UsageError("--check compares greedy runs: leave --temperature out")
    ids = encode_prompt(target, prompt, chat=not args.no_chat)
    if sum(weight.numel() for weight in target.model.parameters()) < SMALL:
        for _ in range(2):  # they are compiled in their first calls: that is no part of a run's pace
            deque(decode(ids, method, min(WARM_UP, args.max_new_tokens), sampling=sampling), maxlen=0)
    records = decode(
        ids, method, args.max_new_tokens, sampling=sampling, detail=FULL_DETAIL if args.full else Detail(),
        prompt=prompt, command=shlex.join(["python", "-m", "specviz", *sys.argv[1:]]),
    )
    trace = _follow(records, args)
    check = check_run(trace, target) if args.check else None
    if args.json:
        print(json.dumps(as_json(trace, check), ensure_ascii=False))
    else:
        print("\n" + table(summary_rows(trace) + check_rows(trace, check)))
    if args.out:
        print(f"written to {args.out}", file=sys.stderr)
    return 0 if check is None or check.identical or check.near_tie else 1


def _follow(records, args: argparse.Namespace) -> Trace:
    """Print and write records as they come; what was made stays in the file whatever happens."""
    strip = None if args.json else StripPrinter()
    trace: Trace | None = None
    try:
        writing = TraceWriter(args.out) if args.out else nullcontext()
    except OSError as error:
        raise UsageError(f"--out {args.out}: {error.strerror}; choose a file that can be written") from None
    with writing as writer:
        for record in records:
            if writer is not None:
                try:
                    writer.write(record)
                except OSError as error:
                    raise UsageError(
                        f"--out {args.out}: {error.strerror}; what was written so far is in {args.out}.part"
                    ) from None
            if strip is not None:
                strip.show(record)
            if record.kind == "header":
                trace = Trace(record)
            elif record.kind == "iteration":
                trace.iterations.append(record)
            else:
                trace.footer = record
    return trace


def check_rows(trace: Trace, check: Check | None) -> list[tuple[str, str]]:
    if check is None:
        return []
    speed = "not known" if check.speedup is None else f"{check.speedup:.2f} times the target alone"
    spent = account(trace, check.plain_trace)
    why = [("account", spent.sentence())] if spent else []
    return [("check", check.verdict()), ("speed-up", speed), *why]


def as_json(trace: Trace, check: Check | None) -> dict:
    """The run as one JSON object for scripts."""
    from specviz.analysis.metrics import measure

    return {
        "method": trace.header.method,
        "target": trace.header.target["name"],
        "draft": (trace.header.draft or {}).get("name"),
        "text": trace.text,
        "ids": list(trace.output_ids),
        "end": trace.footer.end if trace.footer else None,
        "metrics": measure(trace).as_dict(),
        "check": check.as_dict() if check else None,
        "account": spent.as_dict() if check and (spent := account(trace, check.plain_trace)) else None,
    }


def _prompt(args: argparse.Namespace) -> str:
    if args.prompt_file is not None:
        try:
            return args.prompt_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise UsageError(f"--prompt-file {args.prompt_file}: {reason}; choose a text file") from None
    if args.prompt == "-":
        return sys.stdin.read()
    if args.prompt is None:
        raise UsageError("no prompt: give --prompt TEXT, --prompt-file FILE, or --prompt - for standard input")
    return args.prompt
