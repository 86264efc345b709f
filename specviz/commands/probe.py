"""``python -m specviz probe``: measure once what every policy and exit layer would see, and what would be fastest."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from specviz.analysis.cost import Costs, best, load_costs, save_costs, textbook_lookahead, textbook_speedup
from specviz.analysis.measure import measure_probe
from specviz.analysis.probe import Probe, load_probe, save_probe
from specviz.analysis.simulate import Policy, simulate
from specviz.commands._models import add_model_arguments, load_models
from specviz.commands._progress import Printer
from specviz.commands.sweep import numbers
from specviz.decoding.methods import MAX_LOOKAHEAD
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel, encode_prompt
from specviz.trace import Trace, read_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", help="the text to continue or to answer")
    prompt.add_argument("--trace", type=Path, help="a finished greedy run of the same target, as decode --out wrote it")
    prompt.add_argument("--from", dest="saved", type=Path, metavar="FILE", help="show a probe that --out wrote; no model")
    parser.add_argument("--max-new-tokens", type=int, default=128, help="most tokens of the output (default 128)")
    parser.add_argument("--no-chat", action="store_true", help="leave the model's chat template out")
    parser.add_argument("--exit-layers", metavar="RANGE",
                        help="such as 1:11; default without a draft model: all of the target's")
    parser.add_argument("--max-lookahead", type=int, default=20,
                        help="longest lookahead that can be asked for afterwards (default 20)")
    parser.add_argument("--costs", type=Path, metavar="FILE", help="measured costs, written here if there is no such file")
    parser.add_argument("--no-costs", action="store_true", help="leave the time costs, and so the predictions, out")
    parser.add_argument("--out", type=Path, help="write the probe to this file (.npz)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(args: argparse.Namespace) -> int:
    costs: Costs | None = None
    if args.saved:
        probe = load_probe(args.saved)
        costs = load_costs(args.costs) if args.costs else None
    else:
        probe, costs = _measure(args)
    if costs is not None and (costs.target, costs.draft) != (probe.target, probe.draft) and probe.kind == "assistant":
        raise UsageError(f"these costs are of {costs.target} with {costs.draft}: measure those of this pair")
    if args.out:
        try:
            save_probe(args.out, probe)
        except OSError as error:
            raise UsageError(f"--out {args.out}: {error.strerror}; choose a file that can be written") from None
    report = report_of(probe, costs)
    print(json.dumps(report, ensure_ascii=False) if args.json else table(report))
    return 0


def _measure(args: argparse.Namespace) -> tuple[Probe, Costs | None]:
    if not 1 <= args.max_lookahead <= MAX_LOOKAHEAD:
        raise UsageError(f"--max-lookahead {args.max_lookahead}: choose 1..{MAX_LOOKAHEAD}")
    if args.prompt is None and args.trace is None:
        raise UsageError("no prompt: give --prompt TEXT, --trace FILE of a finished run, or --from FILE of a probe")
    layers = numbers(args.exit_layers, "--exit-layers", int)
    trace = _trace(args.trace) if args.trace else None
    with Printer() as progress:
        target, draft, _ = load_models(args, progress)
        if layers is not None:
            draft = None
        ids = trace.header.prompt_ids if trace else encode_prompt(target, args.prompt, chat=not args.no_chat)
        probe = measure_probe(
            target, ids, draft, limit=args.max_new_tokens, max_lookahead=args.max_lookahead, exit_layers=layers,
            trace=trace, prompt=args.prompt, progress=progress,
        )  # fmt: skip
        costs = None if args.no_costs else _costs(args, target, draft, len(ids) + probe.length // 2, progress)
    return probe, costs


def _costs(args: argparse.Namespace, target: LoadedModel, draft: LoadedModel | None, context: int, progress) -> Costs:
    from specviz.analysis.timing import measure_costs

    if args.costs and args.costs.exists():
        return load_costs(args.costs)
    costs = measure_costs(target, draft, context=context, progress=progress)
    if args.costs:
        try:
            save_costs(args.costs, costs)
        except OSError as error:
            raise UsageError(f"--costs {args.costs}: {error.strerror}; choose a file that can be written") from None
    return costs


def _trace(path: Path) -> Trace:
    try:
        return read_trace(path)
    except OSError as error:
        raise UsageError(f"--trace {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(f"--trace {path}: {error}") from None


def report_of(probe: Probe, costs: Costs | None) -> dict:
    """What a probe says: for each row how often it is right, how far the oracle would look, and the best settings."""
    rows = []
    for index, layer in enumerate(probe.rows):
        exit_layer = layer if probe.kind == "early-exit" else None
        oracle = simulate(probe, Policy("oracle"), exit_layer)
        row = {
            "exit_layer": exit_layer,
            "right": float(probe.match[index].mean()),
            "mean_confidence": float(probe.confidence[index].mean()),
            "oracle_target_forwards": len(oracle.iterations),
            "oracle_mean_lookahead": oracle.drafted / len(oracle.iterations),
        }
        if costs is not None:
            # One row as a probe of its own, so that the best of each layer is found by the same function.
            alone = _row(probe, index)
            static, dynamic = best(costs, alone, "constant"), best(costs, alone, "dynamic")
            ratio = costs.cost_ratio(exit_layer)
            lookahead = textbook_lookahead(row["right"], ratio)
            row |= {
                "cost_ratio": ratio,
                "best_constant": {"lookahead": static.lookahead, "speedup": static.speedup,
                                  "tokens_per_second": static.tokens_per_second},
                "best_dynamic": {"lookahead": dynamic.lookahead, "threshold": dynamic.threshold,
                                 "speedup": dynamic.speedup, "tokens_per_second": dynamic.tokens_per_second},
                "textbook": {"lookahead": lookahead, "speedup": textbook_speedup(row["right"], lookahead, ratio)},
            }  # fmt: skip
        rows.append(row)
    return {
        "target": probe.target, "draft": probe.draft, "tokens": probe.length, "end": probe.end,
        "max_lookahead": probe.max_lookahead, "rows": rows, "info": dict(probe.info),
        "plain_tokens_per_second": 1 / costs.plain_token() if costs else None,
    }  # fmt: skip


def _row(probe: Probe, index: int) -> Probe:
    from dataclasses import replace

    at = slice(index, index + 1)
    return replace(
        probe, rows=(probe.rows[index],), draft_ids=probe.draft_ids[at], confidence=probe.confidence[at],
        margin=probe.margin[at], wrong_index=probe.wrong_index[at],
    )  # fmt: skip


def table(report: dict) -> str:
    """The report for a terminal."""
    drafter = f"draft {report['draft']}" if report["draft"] else "its own exit layers"
    lines = [f"{report['target']}, {report['tokens']} tokens, {drafter}"]
    if report["plain_tokens_per_second"]:
        lines.append(f"the target alone: {report['plain_tokens_per_second']:.1f} tokens per second (measured costs)")
    timed = report["plain_tokens_per_second"] is not None
    head = "exit   right  oracle lookahead  target forwards"
    lines += ["", head + ("   draft cost  best constant     best dynamic            textbook" if timed else "")]
    for row in report["rows"]:
        exit_layer = "-" if row["exit_layer"] is None else str(row["exit_layer"])
        text = f"{exit_layer:>4}  {row['right']:>6.1%}  {row['oracle_mean_lookahead']:>16.2f}  {row['oracle_target_forwards']:>15}"
        if timed:
            static, dynamic, book = row["best_constant"], row["best_dynamic"], row["textbook"]
            text += (
                f"   {row['cost_ratio']:>10.1%}"
                f"  k {static['lookahead']:>2}: {static['speedup']:.2f} times"
                f"  k {dynamic['lookahead']:>2}, t {dynamic['threshold']:.2f}: {dynamic['speedup']:.2f} times"
                f"  k {book['lookahead']:>2}: {book['speedup']:.2f} times"
            )
        lines.append(text)
    return "\n".join(lines)
