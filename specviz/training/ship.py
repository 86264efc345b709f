"""Put a finished run where the zoo finds it: weights, tokenizer, log, measurements, and a card that says how it was made."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from specviz.errors import UsageError
from specviz.training.config import DEFAULTS, TrainConfig
from specviz.training.corpus import prepare
from specviz.training.evaluate import full_report, greedy, held_out_prompts
from specviz.training.files import replace_folder
from specviz.training.tokenizer import load_tokenizer

PROMPTS, SHOWN = 200, 5
SAMPLED_AT = 0.7  # temperature of the second set of continuations on the card
TITLES = {
    "layerskip": "A small Llama-shaped model of Python source, trained with layer dropout and early exit losses (the LayerSkip recipe, arXiv 2404.16710), so that its first layers alone draft well.",
    "plain": "The baseline twin of tiny-layerskip: the same model, data, seed and number of steps without the recipe. Its early layers do not draft.",
    "distill": "A shallow draft model with the tokenizer of tiny-layerskip, trained on that model's own next-token choices.",
}


def command(config: TrainConfig) -> str:
    """The command line that repeats the run; corpora by the name of the package, wherever it is installed."""
    default = DEFAULTS[config.kind]
    words = [f"python -m specviz train {config.kind} --tokens {config.tokens}"]
    names = {"batch_tokens", "learning_rate", "warmup_steps", "weight_decay", "seed", "generated_share", "generated_rows", "sharpness"}
    for part, reference in ((config.shape, default.shape), (config.recipe, default.recipe), (config, default)):
        for name, value in vars(part).items():
            if value != getattr(reference, name) and (part is not config or name in names):
                words.append(_option(name, value))
    if config.contexts != default.contexts:
        words.append("--contexts " + ",".join(f"{n}:{share:g}" if share < 1 else f"{n}" for share, n in config.contexts))
    if config.layer_order:
        words.append("--layer-order " + ",".join(map(str, config.layer_order)))
    if config.target:
        words.append("--target assets/models/tiny-layerskip")
    if not config.stdlib:
        words.append("--no-stdlib")
    if config.corpus:
        words.append("--corpus " + " ".join(f"$SITE/{Path(path).name}" for path in config.corpus))
    return " \\\n    ".join(words)


def _option(name: str, value) -> str:
    """``exit_power``, 0.5 -> ``--exit-power 0.5``; a target is named as it is shipped or kept, never by a path."""
    if name == "target":
        value = "runs/layerskip-3/model" if "runs" in Path(value).parts else value
    return f"--{name.replace('_', '-')} {value:g}" if isinstance(value, float) else f"--{name.replace('_', '-')} {value}"


def commands(configs: list[TrainConfig], ends: list[int], changes: list[dict]) -> list[str]:
    """The command lines that repeat a training: of runs that continue each other, each in a folder of its own, and of the
    settings that were changed when the last one was resumed."""
    lines, last = [], len(configs)
    for number, config in enumerate(configs, 1):
        folder = f"runs/{config.kind}-{number}" if last > 1 or changes else ""
        words = [command(config), *([f"--out {folder}"] if folder else [])]
        if number > 1:
            words.append(f"--weights runs/{config.kind}-{number - 1}/model --first-step {config.first_step}")
        stops = [*ends[number - 1 : number], *([row["step"] for row in changes] if number == last else [])]
        if stops:
            words.append(f"--stop-step {stops[0]}")
        lines.append(" \\\n    ".join(words))
    for row, following in zip(changes, [*changes[1:], None], strict=True):
        words = [f"python -m specviz train {configs[-1].kind} --out {folder} --resume"]
        words += [_option(name, value) for name, value in row.items() if name not in ("kind", "step")]
        words += [f"--stop-step {following['step']}"] if following else []
        lines.append(" ".join(words))
    return lines


def departures(configs: list[TrainConfig], changes: list[dict]) -> list[str]:
    """How a training differed from the published recipe, and from one run in one go."""
    recipe, lines = configs[-1].recipe, []
    if recipe.exits:
        if recipe.exit_depth < 1 or recipe.exit_power != 1 or recipe.last_share:
            lines.append(
                "Not as in the paper: exit weights are e(l)^p with p below 1, so that early exits weigh more (stage 1: all exits; "
                "later stages: only exits in the first half of the depth, all equal, the full model's share fixed). With the "
                "published weights exit 4 hardly gets any loss in a model this small and learns too late."
            )
        if any(config.layer_order for config in configs):
            lines.append(
                "Between two stages the layers were put into another order, once. What lowers the loss most had formed in layers 5 "
                "and 6 (exit 6 was 0.27 nats better than exit 5), out of reach of "
                "exit 4. Moved before layers 3 and 4 it is at hand there: agreement of exit 4 on held-out text went from 55 to "
                "64 % within 0.2 M tokens, and the loss was back where it had been. A model trained with layer dropout bears "
                "this: the new order alone cost 0.13 nats."
            )
    if configs[-1].kind == "distill" and any("target" in row for row in changes):
        lines.append(
            "It began to learn from the target as it was at 9.2 M tokens (step 4500, its texts were written then too), and "
            "went on with the finished one."
        )
    if any("tokens" in row for row in changes):
        twins = ", for both twins at the same step" if configs[-1].kind != "distill" else ""
        lines.append(f"The budget was shortened on the way (see the commands){twins}.")
    return [part for line in lines for part in (line, "")]


def public_rows(rows: list[dict]) -> list[dict]:
    """The log without the paths of the machine that wrote it."""
    rows = json.loads(json.dumps(rows))
    for row in rows:
        if "config" in row:
            row["config"]["corpus"] = [Path(path).name for path in row["config"]["corpus"]]
            row["config"]["weights"] = Path(row["config"].get("weights", "")).parent.name
            if row["config"]["target"]:
                row["config"]["target"] = "tiny-layerskip"
    return rows


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def machine_text() -> str:
    """What can be said of this machine without naming it."""
    features = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        features = names[0].split(":", 1)[1].strip() + ", " if names else ""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{features}{os.cpu_count()} cores"
    return f"{device}, {platform.system()}, torch {torch.__version__.split('+')[0]}"


def read_rows(runs: list[Path]) -> list[dict]:
    """The logs of runs that continue each other, as one: rows of an earlier run after the later one began are dropped,
    seconds go on counting."""
    rows: list[dict] = []
    seconds = 0.0
    for run in runs:
        new = public_rows([json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()])
        first = new[0].get("config", {}).get("first_step", 0)
        rows = [row for row in rows if row.get("step", 0) <= first]
        seconds = max((row.get("seconds", 0.0) for row in rows), default=0.0)
        rows += [{**row, "seconds": round(row["seconds"] + seconds, 1)} if "seconds" in row else row for row in new]
    return rows


def ship(
    run: Path, to: Path, draft: Path | None = None, machine: str | None = None, before: list[Path] | None = None
) -> dict:
    """Copy the model of ``run`` to the folder ``to`` with its log, ``evaluation.json`` and card; returns the evaluation.

    A distilled draft is measured against its target, other models against their own exits (and ``draft``, if given).
    ``before``: the runs whose weights ``run`` went on from, first one first. UsageError where ``run`` holds no model.
    """
    config = TrainConfig.load(run / "config.json")
    if not (run / "model" / "model.safetensors").exists():
        raise UsageError(f"{run}: no model here yet")
    stages = [*(before or []), run]
    rows = read_rows(stages)
    # As each began: what was changed on resuming stands in rows of its own.
    configs = [TrainConfig.of(row["config"]) for row in rows if row["kind"] == "run"]
    ends = [later.first_step for later in configs[1:]]
    model = LlamaForCausalLM.from_pretrained(run / "model", dtype=torch.float32)
    tokenizer = load_tokenizer(run / "model")
    distilled = config.kind == "distill"
    corpus = prepare(
        [Path(path) for path in config.corpus], config.shape.vocabulary, run.parent / "corpus",
        tokenizer=tokenizer if distilled else None, stdlib=config.stdlib,
    )  # fmt: skip
    prompts = held_out_prompts(corpus, PROMPTS)
    if distilled:
        target = LlamaForCausalLM.from_pretrained(config.target, dtype=torch.float32)
        report = full_report(target, tokenizer, prompts, draft=model)
        report = {key: value for key, value in report.items() if key not in ("exits", "exits_without_periodic", "loops")}
    else:
        other = LlamaForCausalLM.from_pretrained(draft, dtype=torch.float32) if draft else None
        report = full_report(model, tokenizer, prompts, draft=other)
    last = [row for row in rows if row["kind"] == "evaluation"][-1]
    report = {
        **report,
        **{key: last[key] for key in ("held_out_loss", "agreement", "target_agreement", "tokens", "seconds") if key in last},
        "continuation_tokens": report["tokens"],
        "finished": last["tokens"] >= config.tokens,
    }
    shown = held_out_prompts(corpus, PROMPTS)[:: PROMPTS // SHOWN][:SHOWN]
    torch.manual_seed(0)
    sampled = model.generate(
        shown, attention_mask=torch.ones_like(shown), max_new_tokens=64, do_sample=True, temperature=SAMPLED_AT, top_k=0
    )
    texts = [
        (tokenizer.decode(one[:96]), tokenizer.decode(one[96:]), tokenizer.decode(other[96:], skip_special_tokens=True))
        for one, other in zip(greedy(model, shown, 64), sampled, strict=True)
    ]

    def write(folder: Path) -> None:
        shutil.copytree(run / "model", folder, dirs_exist_ok=True)
        (folder / "training_log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        report["sha256"] = sha256(folder / "model.safetensors")
        (folder / "evaluation.json").write_text(json.dumps(report, indent=2) + "\n")
        (folder / "README.md").write_text(card(configs, ends, rows, report, texts, machine or machine_text()))

    replace_folder(to, write)
    return report


def card(
    configs: list[TrainConfig], ends: list[int], rows: list[dict], report: dict, texts: list[tuple[str, str, str]], machine: str
) -> str:
    """The model's README.md. configs: of the runs that continue each other; ends: the step at which each but the last ended."""
    config = configs[-1]
    header = next(row for row in rows if row["kind"] == "run")
    shape = config.shape
    lines = [
        f"# tiny-{'draft' if config.kind == 'distill' else config.kind}",
        "",
        TITLES[config.kind],
        "",
        f"{shape.layers} layers, hidden {shape.hidden}, {shape.heads} heads, vocabulary {shape.vocabulary}, {header['parameters'] / 1e6:.2f} M parameters (embedding and head tied), weights in bf16, to be computed with in fp32. An ordinary `LlamaForCausalLM`.",
        "",
        "| | |",
        "|---|---|",
        f"| data | {', '.join(header['packages'])}: Python source only, {header['train_tokens'] / 1e6:.1f} M tokens; tests, generated files, tables, licence headers and long docstrings left out; {len(header['held_out_files'])} files held out |",
        f"| tokens seen | {report['tokens'] / 1e6:.2f} M |",
        f"| minutes | {report['seconds'] / 60:.0f} (one CPU thread) |",
        f"| machine | {machine} |",
        f"| held-out loss | {report['held_out_loss']:.4f} nats a token |",
    ]
    if not report["finished"]:
        lines.append("| state | interim: training goes on |")
    lines += _measurements(config, report)
    lines += [
        f"| sha256 of model.safetensors | `{report['sha256']}` |",
        "",
        "Made with (`$SITE` is the folder of installed packages):",
        "",
        "```sh",
        *commands(configs, ends, [row for row in rows if row["kind"] == "change"]),
        "```",
        "",
        *departures(configs, [row for row in rows if row["kind"] == "change"]),
        "The training log is `training_log.jsonl`, all measurements are in `evaluation.json`.",
        "",
        f"## {SHOWN} continuations",
        "",
        f"64 tokens after `▶`, of held-out files that were not chosen by hand: greedy, and sampled at temperature {SAMPLED_AT}.",
    ]
    for prompt, certain, sampled in texts:
        tail = "\n".join(prompt.split("\n")[-8:])
        lines += ["", "Greedy:", "", "````python", f"{tail}▶{certain}", "````", "", "Sampled:", "", "````python", f"{tail}▶{sampled}", "````"]
    return "\n".join(lines) + "\n"


def _measurements(config: TrainConfig, report: dict) -> list[str]:
    conditions = f"{report['prompts']} held-out prompts, {report['continuation_tokens']} tokens each, greedy, lookahead {report['lookahead']}"

    def line(name: str, counts: dict, rest: dict) -> str:
        return f"| {name} | {counts['rate']:.1%} ({counts['accepted']} of {counts['drafted']}), {counts['tokens_per_forward']:.2f} tokens a target forward | {rest['rate']:.1%} |"

    lines = []
    if config.kind == "distill":
        lines.append(f"| agreement with the target, held-out text | {report['target_agreement']:.1%} |")
    else:
        agreement = ", ".join(f"{index + 1}: {share:.0%}" for index, share in enumerate(report["agreement"][:-1]))
        lines.append(f"| agreement of exit E with the full model, held-out text | {agreement} |")
        lines.append(f"| continuations that end in a loop (one line three times) | {report['loops']} of {report['prompts']} |")
    lines.append(f"| continuations whose last 24 tokens repeat themselves, inside a line too | {report['periodic']} of {report['prompts']} |")
    lines += ["", f"Accepted ÷ drafted ({conditions}):", "", "| drafter | acceptance rate | without continuations that end in a loop |", "|---|---|---|"]
    without = report.get("exits_without_periodic", {})
    lines += [line(f"exit {name}", counts, without[name]) for name, counts in report.get("exits", {}).items()]
    if "draft" in report:
        lines.append(line("this draft" if config.kind == "distill" else "tiny-draft", report["draft"], report["draft_without_periodic"]))
    return [*lines, "", "| | |", "|---|---|"]
