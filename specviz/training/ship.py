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
                words.append(f"--{name.replace('_', '-')} {value:g}" if isinstance(value, float) else f"--{name.replace('_', '-')} {value}")
    if config.contexts != default.contexts:
        words.append("--contexts " + ",".join(f"{n}:{share:g}" if share < 1 else f"{n}" for share, n in config.contexts))
    if config.target:
        words.append("--target assets/models/tiny-layerskip")
    if not config.stdlib:
        words.append("--no-stdlib")
    if config.corpus:
        words.append("--corpus " + " ".join(f"$SITE/{Path(path).name}" for path in config.corpus))
    return " \\\n    ".join(words)


def public_rows(rows: list[dict]) -> list[dict]:
    """The log without the paths of the machine that wrote it."""
    rows = json.loads(json.dumps(rows))
    for row in rows:
        if "config" in row:
            row["config"]["corpus"] = [Path(path).name for path in row["config"]["corpus"]]
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


def ship(run: Path, to: Path, draft: Path | None = None, machine: str | None = None) -> dict:
    """Copy the model of ``run`` to the folder ``to`` with its log, ``evaluation.json`` and card; returns the evaluation.

    A distilled draft is measured against its target, other models against their own exits (and ``draft``, if given).
    UsageError where ``run`` holds no model.
    """
    config = TrainConfig.load(run / "config.json")
    if not (run / "model" / "model.safetensors").exists():
        raise UsageError(f"{run}: no model here yet")
    rows = public_rows([json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()])
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
        report = {key: value for key, value in report.items() if key not in ("exits", "loops")}
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
    texts = [(tokenizer.decode(row[:96]), tokenizer.decode(row[96:])) for row in greedy(model, shown, 64)]

    def write(folder: Path) -> None:
        shutil.copytree(run / "model", folder, dirs_exist_ok=True)
        (folder / "training_log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        report["sha256"] = sha256(folder / "model.safetensors")
        (folder / "evaluation.json").write_text(json.dumps(report, indent=2) + "\n")
        (folder / "README.md").write_text(card(config, rows, report, texts, machine or machine_text()))

    replace_folder(to, write)
    return report


def card(config: TrainConfig, rows: list[dict], report: dict, texts: list[tuple[str, str]], machine: str) -> str:
    """The model's README.md."""
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
        command(config),
        "```",
        "",
        "The training log is `training_log.jsonl`, all measurements are in `evaluation.json`.",
        "",
        f"## {SHOWN} continuations",
        "",
        "Greedy, 64 tokens, of held-out files; the prompt ends at `▶`.",
    ]
    for prompt, continuation in texts:
        tail = "\n".join(prompt.split("\n")[-8:])
        lines += ["", "````python", f"{tail}▶{continuation}", "````"]
    return "\n".join(lines) + "\n"


def _measurements(config: TrainConfig, report: dict) -> list[str]:
    conditions = f"{report['prompts']} held-out prompts, {report['continuation_tokens']} tokens each, greedy, lookahead {report['lookahead']}"

    def line(name: str, counts: dict) -> str:
        return f"| {name} | {counts['rate']:.1%} ({counts['accepted']} of {counts['drafted']}), {counts['tokens_per_forward']:.2f} tokens a target forward |"

    lines = []
    if config.kind == "distill":
        lines.append(f"| agreement with the target, held-out text | {report['target_agreement']:.1%} |")
    else:
        agreement = ", ".join(f"{index + 1}: {share:.0%}" for index, share in enumerate(report["agreement"][:-1]))
        lines.append(f"| agreement of exit E with the full model, held-out text | {agreement} |")
        lines.append(f"| continuations that end in a loop (one line three times) | {report['loops']} of {report['prompts']} |")
    lines += ["", f"Accepted ÷ drafted ({conditions}):", "", "| drafter | acceptance rate |", "|---|---|"]
    lines += [line(f"exit {name}", counts) for name, counts in report.get("exits", {}).items()]
    if "draft" in report:
        lines.append(line("this draft" if config.kind == "distill" else "tiny-draft", report["draft"]))
    return [*lines, "", "| | |", "|---|---|"]
