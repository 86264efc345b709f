"""``python -m specviz replay run.jsonl``: show a saved run again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from specviz.commands._terminal import StripPrinter, summary_rows, table
from specviz.errors import UsageError
from specviz.trace import Iteration, TraceError, read_trace, records_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a JSONL file that decode --out wrote")
    parser.add_argument("--speed", type=float, help="play at this multiple of the run's own pace; default: at once")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the text")


def run(args: argparse.Namespace) -> int:
    if args.speed is not None and args.speed <= 0:
        raise UsageError(f"--speed {args.speed:g}: choose a number above 0")
    trace = load(args.file)
    for problem in trace.problems:
        print(f"{args.file}: {problem}", file=sys.stderr)
    if args.json:
        from specviz.commands.decode import as_json

        print(json.dumps(as_json(trace, None), ensure_ascii=False))
        return 0
    strip = StripPrinter()
    for record in records_of(trace):
        if args.speed and isinstance(record, Iteration):
            time.sleep((record.draft_seconds + record.verify_seconds) / args.speed)
        strip.show(record)
    print("\n" + table(summary_rows(trace)))
    return 0


def load(path: Path):
    """Read a trace; UsageError in one line where that cannot be done."""
    try:
        return read_trace(path)
    except TraceError as error:
        raise UsageError(f"{path}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
