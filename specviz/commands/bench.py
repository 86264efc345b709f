"""``python -m specviz bench``: methods and peers side by side, on one machine, with one output."""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from dataclasses import asdict
from pathlib import Path

import torch
from transformers.utils import logging

from specviz.commands._models import add_model_arguments, load_models
from specviz.commands._progress import Printer
from specviz.commands._prompts import add_prompt_arguments, check_counts, chosen_prompts, encoded
from specviz.decoding import METHODS, MethodConfig
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel

PEERS = ("none", "transformers", "all")
STUDIES = ("race", "block", "growth", "log", "memory")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--methods", default=None, metavar="LIST",
                        help="such as autoregressive,dynamic,early-exit:exit_layer=4:lookahead=3; default: all that apply")
    parser.add_argument("--peers", choices=PEERS, default="transformers",
                        help="run the same methods by transformers (default), by the packages of "
                        "tests/requirements-peers.txt too (all), or by none")
    add_prompt_arguments(parser, "open-ended, summarisation, code (default), japanese", "code")
    parser.add_argument("--repetitions", type=int, default=7, help="of each engine on each prompt (default 7)")
    parser.add_argument("--threads", type=int, help="threads of torch; default: the cores that this process may use")
    parser.add_argument("--out", type=Path, help="file of the rows; a measurement that was stopped goes on in its file")
    parser.add_argument("--study", choices=STUDIES, default="race",
                        help="race (default); or what a block of tokens costs, growth with the context, the log, memory")
    parser.add_argument("--rows", metavar="LIST",
                        help="run rows of the sources' tables: opt, codegen, flan-t5, llama, pythia, layerskip, or all")
    parser.add_argument("--device-check", action="store_true",
                        help="everything that needs a GPU, in under four minutes, on models of random weights")
    parser.add_argument("--json", action="store_true", help="print only the last line, a JSON object")


def run(args: argparse.Namespace) -> int:
    check_counts(args)
    _threads(args.threads)
    if args.device_check:
        from specviz.bench.device import device_check

        return device_check(args.device, tell=None if args.json else print)
    if args.rows:
        return _sources(args)
    with Printer() as progress:
        target, draft, offered = load_models(args, progress)
    if args.study != "race":
        return _study(args, target, draft)
    configs = methods(args.methods, target, draft, offered)
    summary = _race(args, target, draft, configs, args.prompts, args.out)
    print(json.dumps(summary, ensure_ascii=False))
    return 0


def methods(given: str | None, target: LoadedModel, draft: LoadedModel | None, offered: str) -> list[MethodConfig]:
    """The methods of a list like 'autoregressive,early-exit:exit_layer=4'; plain decoding is always among them."""
    if given is None:
        names = ["autoregressive"]
        names += ["constant", "heuristic", "dynamic"] if draft else []
        names += [offered] if offered not in names and METHODS[offered].drafter != "assistant" else []
        given = ",".join(names)
    configs = [_method(text.strip()) for text in given.split(",") if text.strip()]
    for config in configs:
        if config.spec.drafter == "assistant" and draft is None:
            raise UsageError(f"the method {config.name} needs a draft model: give --draft or --pair")
    plain = MethodConfig("autoregressive")
    return [plain, *(config for config in dict.fromkeys(configs) if config != plain)]


def _method(text: str) -> MethodConfig:
    name, *parameters = text.split(":")
    given: dict = {"name": name}
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        try:
            given[key] = float(value) if key == "threshold" else int(value)
        except ValueError:
            raise UsageError(f"--methods {text}: {parameter!r} is no parameter, write it as lookahead=4") from None
    return MethodConfig.from_names(given)


def _threads(given: int | None) -> None:
    from specviz.models.cores import choose_threads

    if given is not None:
        if given < 1:
            raise UsageError(f"--threads {given}: choose 1 or more")
        torch.set_num_threads(given)
    else:
        choose_threads()


def _race(args, target: LoadedModel, draft: LoadedModel | None, configs, source: str, out: Path | None) -> dict:
    from specviz.bench import engines, measure, peers, report

    _quiet()
    prompts = encoded(chosen_prompts(args, source), target, not args.no_chat)
    setting = {
        "target": target.name, "draft": draft.name if draft else None, "dtype": str(target.dtype),
        "device": str(target.device), "threads": torch.get_num_threads(), "limit": args.max_new_tokens,
        "prompts": {name: measure.digest(ids) for name, ids in prompts}, "torch": torch.__version__,
        "processor": _processor(),
    }
    racing = []
    if args.peers != "none":
        theirs = engines.copy_for_peers(target)
        helper = engines.copy_for_peers(draft) if draft is not None else None
        for config in configs:
            engine = engines.transformers_engine(config, theirs, helper)
            racing += [engine] if engine is not None else []
            if args.peers == "all":
                # Each gets models of its own: some attach themselves to what they are given.
                racing += peers.peer_engines(
                    config, engines.copy_for_peers(theirs), engines.copy_for_peers(helper) if helper else None
                )
    racing = [engines.ours(config, target, draft) for config in configs] + racing
    with Printer() as progress:
        rows = measure.measure(
            racing, prompts, args.max_new_tokens, args.repetitions, setting=setting, out=out,
            tell=lambda done, total: progress("measuring", done, total, "runs"),
        )
    baseline = next((e.name for e in racing if e.family == "transformers"), racing[0].name)
    # The target alone says what is right: transformers' own plain decoding where it runs, else ours.
    found = report.lines(rows, baseline)
    pairs = report.pairings([row for row in rows if row.engine in {line.engine for line in found if not line.refused}])
    if not args.json:
        print(report.table(found, baseline))
        print("\nat the same settings, interleaved, medians with 95 % intervals")
        for mine, other, ratio in pairs:
            print(f"{mine:<40} is {ratio} times as fast as {other}")
        loads = [row.load for row in rows if row.load is not None]
        if loads:
            print(f"\nthe machine's load while measuring: {min(loads):.1f} to {max(loads):.1f}")
    return {
        "setting": setting,
        "engines": [asdict(line) for line in found],
        "ratios": [{"ours": mine, "other": other, **asdict(ratio)} for mine, other, ratio in pairs],
    }


def _quiet() -> None:
    """Peers announce deprecations and write models to folders; the table is what is to be read."""
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _study(args, target: LoadedModel, draft: LoadedModel | None) -> int:
    from specviz.bench import studies

    configs = methods(args.methods, target, draft, "autoregressive")
    if args.study == "block":
        found: dict = studies.block_cost(target)
        lines = [f"{size:>4} tokens  {ms:8.2f} ms  {ms / found[1]:5.2f} times one" for size, ms in found.items()]
    elif args.study == "growth":
        contexts = (128, 512, 1024, 2000)
        found = {c.name: studies.growth(c, target, draft if c.spec.drafter == "assistant" else None, contexts)
                 for c in configs}
        lines = [f"{name:<22} " + "  ".join(f"{at}: {ms:.2f} ms" for at, ms in row.items()) for name, row in found.items()]
    elif args.study == "log":
        prompt = encoded(chosen_prompts(args, args.prompts), target, not args.no_chat)[0][1]
        found = {
            c.name: studies.log_cost(c, target, draft if c.spec.drafter == "assistant" else None, prompt,
                                     args.max_new_tokens, args.repetitions)
            for c in configs
        }
        lines = [f"{name:<22} " + "  ".join(f"{k}: {v:+.1%}" for k, v in row.items()) for name, row in found.items()]
    else:
        found = studies.peak_memory(target.name, draft.name if draft else None, configs)
        lines = [f"{name:<22} {bytes_ / 1e6:.1f} MB" for name, bytes_ in found.items()]
    if not args.json:
        print("\n".join(lines))
    print(json.dumps({"study": args.study, "target": target.name, "found": found}))
    return 0


def _sources(args: argparse.Namespace) -> int:
    """Rows of the sources' tables: published beside measured, each on its own hardware. A pair that cannot be loaded
    here is told about and left out."""
    from specviz.bench.rows import rows_of
    from specviz.models import zoo

    results = []
    wanted = rows_of(args.rows)
    for pair, task in dict.fromkeys((row.pair, row.task) for row in wanted):
        rows = [row for row in wanted if (row.pair, row.task) == (pair, task)]
        summary, why = None, None
        try:
            chosen = zoo.pair(pair)
            fields = {**vars(args), "pair": pair, "target": None, "draft": None}
            with Printer() as progress:
                target, draft, _ = load_models(argparse.Namespace(**fields), progress)
            source = args.prompts if args.prompts != "code" else task
            out = args.out.with_name(f"{args.out.stem}-{chosen.name}-{task}{args.out.suffix}") if args.out else None
            configs = [MethodConfig("autoregressive"), *(row.method for row in rows)]
            summary = _race(args, target, draft, configs, source, out)
        except UsageError as error:
            why = str(error)
        for row in rows:
            results.append({
                "group": row.group, "pair": pair, "task": task, "method": row.method.as_dict(),
                "published": row.published, "source": row.source, "measured": _speedup(summary, row.method), "why": why,
            })
        target = draft = None
    if not args.json:
        print(f"\n{'pair':<34} {'task':<14} {'method':<12} {'published':>9} {'measured':>9}")
        for row in results:
            published = "" if row["published"] is None else f"{row['published']:.2f}"
            measured = row["why"] or ("" if row["measured"] is None else f"{row['measured']:.2f}")
            print(f"{row['pair']:<34} {row['task']:<14} {row['method']['name']:<12} {published:>9} {measured:>9}")
        print("published: on the source's hardware. measured: here, over our own plain decoding.")
    print(json.dumps({"rows": results}, ensure_ascii=False))
    return 0


def _speedup(summary: dict | None, method: MethodConfig) -> float | None:
    if summary is None:
        return None
    plain = "specviz autoregressive"
    return next(
        (r["value"] for r in summary["ratios"] if r["other"] == plain and r["ours"].split()[1] == method.name), None
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
