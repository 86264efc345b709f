"""``python -m specviz sweep``: real runs over a grid of exit layers, lookaheads and thresholds, beside predictions."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from pathlib import Path

from specviz.analysis.sweep import Plan, cells_of, errors, run_sweep
from specviz.commands._models import add_model_arguments, load_models
from specviz.commands._progress import Printer
from specviz.commands._prompts import add_prompt_arguments, check_counts, chosen_prompts, encoded
from specviz.decoding import METHODS
from specviz.errors import UsageError

MOST_CELLS = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    swept = [name for name, spec in METHODS.items() if {"lookahead", "exit_layer"} & set(spec.parameters)]
    parser.add_argument("--method", choices=swept, metavar="METHOD",
                        help=f"{', '.join(swept)}; default: constant with a draft model, else early-exit")
    parser.add_argument("--exit-layers", metavar="RANGE", help="such as 1:11, 2:10:2 or 3,5,8, ends included")
    parser.add_argument("--lookaheads", metavar="RANGE", help="such as 1:8")
    parser.add_argument("--thresholds", metavar="RANGE", help="such as 0:0.9:0.1 or 0.2,0.4")
    add_prompt_arguments(parser, "open-ended (default), summarisation, code, japanese, all", "open-ended")
    parser.add_argument("--repetitions", type=int, default=1, help="of each run; the median counts (default 1)")
    parser.add_argument("--out", type=Path, default=Path("sweep.jsonl"),
                        help="file of the rows (default sweep.jsonl); a sweep that was stopped goes on in its file")
    parser.add_argument("--json", action="store_true", help="print only the summary, as one JSON object")


def run(args: argparse.Namespace) -> int:
    check_counts(args)
    values = {
        "exit_layer": numbers(args.exit_layers, "--exit-layers", int),
        "lookahead": numbers(args.lookaheads, "--lookaheads", int),
        "threshold": numbers(args.thresholds, "--thresholds", float),
    }
    prompts = chosen_prompts(args, args.prompts)
    with Printer() as progress:
        target, draft, _ = load_models(args, progress)
    method = args.method or ("early-exit" if draft is None or values["exit_layer"] else "constant")
    layers = int(getattr(target.model.config, "num_hidden_layers", 0))
    plan = Plan(
        target, draft if METHODS[method].drafter == "assistant" else None, cells_of(method, layers, **values),
        encoded(prompts, target, not args.no_chat),
        args.max_new_tokens, args.repetitions,
    )  # fmt: skip
    if not args.json:
        print(f"{len(plan.cells)} cells of {method} on {len(plan.prompts)} prompts, up to {plan.limit} tokens each")
        print(HEAD)
    with Printer() as progress:
        rows = run_sweep(
            plan, args.out, progress=progress, told=None if args.json else _show,
            command=shlex.join(["python", "-m", "specviz", *sys.argv[1:]]),
        )
    summary = summary_of(rows)
    if args.json:
        print(json.dumps(summary, ensure_ascii=False))
        return 0
    print(f"\nall cells, fastest first\n{HEAD}")
    for row in sorted(rows, key=lambda row: -row["speedup"]):
        print(line(row))
    for title, error, count in errors(rows):
        print(f"median absolute error of the predicted {title}: {error:.1%} over {count} cells")
    print(f"rows in {args.out}", file=sys.stderr)
    print(json.dumps(summary, ensure_ascii=False))
    return 0


HEAD = (
    "exit  lookahead  threshold  acceptance   tokens/s  predicted   speed-up  predicted  textbook   same text"
)


def line(row: dict) -> str:
    """A cell as a line of the table."""
    def cell(value, form: str, width: int) -> str:
        return ("-" if value is None else format(value, form)).rjust(width)

    return "  ".join([
        cell(row["exit_layer"], "d", 4), cell(row["lookahead"], "d", 9), cell(row["threshold"], ".2f", 9),
        cell(row["acceptance_rate"], ".1%", 10), cell(row["tokens_per_second"], ".1f", 9),
        cell(row.get("predicted_tokens_per_second"), ".1f", 9), cell(row["speedup"], ".2f", 9),
        cell(row.get("predicted_speedup"), ".2f", 9), cell(row.get("textbook_speedup"), ".2f", 8),
        ("yes" if row["identical"] else "no").rjust(10),
    ])  # fmt: skip


def _show(row: dict, left: float) -> None:
    print(f"{line(row)}   {_duration(left)} left", flush=True)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def summary_of(rows: list[dict]) -> dict:
    """What a script wants to know: the best cell as measured and as predicted, and how far predictions were off."""
    keys = ("method", "exit_layer", "lookahead", "threshold", "tokens_per_second", "speedup", "acceptance_rate")
    fastest = max(rows, key=lambda row: row["speedup"])
    summary = {
        "cells": len(rows),
        "identical": all(row["identical"] for row in rows),
        "best": {key: fastest[key] for key in keys},
    }
    predicted = [row for row in rows if row.get("predicted_speedup") is not None]
    if predicted:
        promised = max(predicted, key=lambda row: row["predicted_speedup"])
        summary["predicted_best"] = {key: promised[key] for key in (*keys, "predicted_speedup")}
        summary["as_simulated"] = all(row["as_simulated"] for row in predicted)
        summary["median_absolute_error"] = {title: error for title, error, _ in errors(rows)}
    return summary


def numbers(text: str | None, option: str, kind: type) -> tuple | None:
    """"1:4" -> 1, 2, 3, 4; "0:1:0.5" -> 0, 0.5, 1; "3,5" -> 3, 5. Ends are included."""
    if text is None:
        return None
    out: list = []
    try:
        for part in text.split(","):
            ends = [kind(piece) for piece in part.split(":")]
            if len(ends) == 1:
                out += ends
                continue
            first, last, step = ends if len(ends) == 3 else (*ends, kind(1))
            if step <= 0 or last < first or not all(math.isfinite(end) for end in ends):
                raise ValueError
            count = int((last - first) / step + 1e-9) + 1
            if count > MOST_CELLS:
                raise ValueError
            out += [kind(round(first + index * step, 9)) for index in range(count)]
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text}: write a range such as 1:8, 2:10:2, or a list such as 3,5,8") from None
    return tuple(dict.fromkeys(out))
