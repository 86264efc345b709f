"""The card of a shallow draft: what it learned from, what of it is accepted, and what that is worth."""

from __future__ import annotations

from specviz.training.answers import AnswerSettings
from specviz.training.config import SHALLOW, TrainConfig


def commands(config: TrainConfig, settings: AnswerSettings, groups: int) -> list[str]:
    """What repeats a training."""
    words = [f"python -m specviz train distill --target {config.target} --prompts {groups * settings.group}"]
    words += [f"--tokens {config.tokens} --batch-tokens {config.batch_tokens} --kept-layers {','.join(map(str, config.kept_layers))}"]
    for name in ("head_tokens", "learning_rate", "sharpness", "warmup_steps", "seed"):
        value = getattr(config, name)
        if value != getattr(SHALLOW, name):
            words.append(f"--{name.replace('_', '-')} {value:g}")
    return [" \\\n    ".join(words)]


def card(name: str, config: TrainConfig, rows: list[dict], report: dict, settings: AnswerSettings, groups: int, machine: str) -> str:
    """The draft's README.md."""
    header = {}
    for row in rows:
        if row["kind"] in ("run", "data"):
            header.update(row)
    kept = ", ".join(map(str, config.kept_layers))
    four = next(row for row in report["lookaheads"] if row["lookahead"] == 4)
    lines = [
        f"# {name}",
        "",
        f"A shallow draft for {config.target} (SmolLM2-135M-Instruct): {len(config.kept_layers)} layers that began as layers {kept} of the target and learned its next-token choices on answers that it wrote itself.",
        "",
        f"{config.shape.layers} layers, hidden {config.shape.hidden}, {config.shape.heads} heads, vocabulary {config.shape.vocabulary}, {header['parameters'] / 1e6:.2f} M weights of its own in bf16; on a CPU they are computed with in 8 bits, for a guess need not be exact, but cheap (`{name}-fp32` is the same in 32 bits). Embedding and head are the target's: the loader puts both together into an ordinary `LlamaForCausalLM`. The head is trimmed to {header['head_tokens']} tokens, which make {report['head_coverage']:.1%} of the target's answers to the prompts below; a token outside has draft probability 0, so the output is still the target's. `{name}-whole` is the draft in 32 bits under the whole head.",
        "",
        "| | |",
        "|---|---|",
        f"| data | {header['answers']} answers of the target, {header['answer_tokens'] / 1e3:.0f} thousand tokens with their prompts; prompts of our own: questions, explanations, stories, letters, lists, summaries, Python functions; temperatures 0, 0.3 and 0.7 |",
        f"| held out | the {report['prompts']} prompts of `assets/prompts` in English, whose answers and near relatives are not among the data; {header['held_out_answers']} of the answers and all summaries of them |",
        f"| tokens seen | {report['tokens'] / 1e6:.2f} M |",
        f"| minutes | {report['seconds'] / 60:.0f}{_threads(rows)} |",
        f"| machine | {machine} |",
        f"| held-out loss | {report['held_out_loss']:.4f} nats a token, against the target's picks |",
        f"| agreement with the target's picks | {report['target_agreement']:.1%} on held-out answers, {report['prompts_agreement']:.1%} on greedy answers to the held-out prompts |",
        f"| accepted ÷ drafted, lookahead 4 | {four['accepted'] / four['drafted']:.1%} ({four['accepted']} of {four['drafted']}), {four['tokens'] / four['forwards']:.2f} tokens a target forward |",
        f"| sha256 of model.safetensors | `{report['sha256']}` |",
        "",
        "Made with (the answers first; `--only answers` and `--only training` do one of the two):",
        "",
        "```sh",
        *commands(config, settings, groups),
        "```",
        "",
        *_on_the_way(rows),
        f"## What was accepted\n\nGreedy answers to {report['prompts']} held-out prompts, up to 128 tokens each, by the draft in {report['bits']} bits.",
        "",
        *_lookaheads(report),
        "",
        "| task | accepted ÷ drafted, lookahead 4 |",
        "|---|---|",
        *(f"| {task} | {row['accepted'] / row['drafted']:.1%} ({row['accepted']} of {row['drafted']}) |" for task, row in report["tasks"].items()),
        "",
        *_account(report),
        *_bench(report, name),
        "## How it learned",
        "",
        "| thousand tokens | loss | agreement, held-out answers | agreement, held-out prompts | accepted ÷ drafted, lookahead 4 |",
        "|---|---|---|---|---|",
        *(
            f"| {row['tokens'] / 1e3:.0f} | {row['held_out_loss']:.3f} | {row['target_agreement']:.1%} | {row['prompts_agreement']:.1%} | {row['prompts_accepted'] / row['prompts_drafted']:.1%} |"
            for row in rows if row["kind"] == "evaluation"
        ),
        "",
        "The training log is `training_log.jsonl`, all measurements are in `evaluation.json`.",
    ]
    return "\n".join(lines) + "\n"


def _threads(rows: list[dict]) -> str:
    """How many CPU threads each part of a training had, where the log knows all of them."""
    counts = [row.get("threads") for row in rows if row["kind"] in ("run", "data")]
    if None in counts:
        return ""
    least, most = min(counts), max(counts)
    return f" ({least} CPU thread{'s' * (least > 1)})" if least == most else f" ({least} to {most} CPU threads)"


def _on_the_way(rows: list[dict]) -> list[str]:
    """What was different before the last part of a training, which the command above doesn't tell."""
    began, parts = next(row for row in rows if row["kind"] == "run"), []
    for row in rows:
        if row["kind"] == "data" and row["answer_tokens"] != began["answer_tokens"]:
            parts.append(f"up to step {row['step']} there were {began['answers']} answers ({began['answer_tokens'] / 1e3:.0f} thousand tokens)")
            began = row
        elif row["kind"] == "change" and "tokens" in row:
            parts.append(f"at step {row['step']} the budget, and with it the learning rate's course, was changed to {row['tokens']} tokens")
    return [f"Trained in parts: {'; '.join(parts)}.", ""] if parts else []


def _lookaheads(report: dict) -> list[str]:
    timed = "costs_ms" in report
    lines = ["| lookahead | accepted ÷ drafted | tokens a target forward |" + (" predicted speed, plain decoding = 1 |" if timed else "")]
    lines.append("|---|---|---|" + ("---|" if timed else ""))
    for row in report["lookaheads"]:
        words = f"| {row['lookahead']} | {row['accepted'] / row['drafted']:.1%} ({row['accepted']} of {row['drafted']}) | {row['tokens'] / row['forwards']:.2f} |"
        lines.append(words + (f" {row['predicted_ratio']:.2f} |" if timed else ""))
    return lines


def _account(report: dict) -> list[str]:
    """What the parts of an iteration cost, and what follows from that."""
    if "costs_ms" not in report:
        return []
    costs = report["costs_ms"]
    plain, step, verify = costs["plain_token"], costs["draft_step"], costs["verify"]
    best = max(report["lookaheads"], key=lambda row: row["predicted_ratio"])
    needed = (costs["first"] + step + verify["2"] + plain - verify["1"]) / plain
    return [
        "## What that is worth",
        "",
        f"On {costs['threads']} threads ({costs['stream']}) a plain token takes {plain:.1f} ms, a drafted one {step:.1f} ms ({step / plain:.0%} of it; the first of a draft {costs['first']:.1f} ms more), and the target's forward over 2, 3, 4 and 5 tokens {verify['2']:.1f}, {verify['3']:.1f}, {verify['4']:.1f} and {verify['5']:.1f} ms. "
        f"One drafted token so costs {needed:.2f} plain tokens an iteration, and pays as soon as more than {needed - 1:.0%} of such single guesses are accepted; for a ratio of 1.2 it takes {1.2 * needed - 1:.0%}. "
        f"Best by these costs: constant lookahead {best['lookahead']}, {best['predicted_ratio']:.2f} times plain decoding; dynamic with lookahead {report['dynamic']['lookahead']} and threshold {report['dynamic']['threshold']:g}, {report['dynamic']['predicted_ratio']:.2f} times, which `generation_config.json` asks for.",
        "",
    ]


def _bench(report: dict, name: str) -> list[str]:
    """What decoding with the draft measured beside plain decoding."""
    found = report.get("bench")
    if not found:
        return []
    methods = [row["engine"].removeprefix("specviz ") for row in found["methods"]]
    return [
        f"Measured in one interleaved run on {found['threads']} threads, {found['prompts']} of the held-out prompts, {found['limit']} tokens each, {found['repetitions']} repetitions, outputs identical. Ratio: seconds a token of plain decoding of the same text ÷ the method's, prefill included, median and its 95 % interval. A run's caches are colder than those of parts that are measured alone.",
        "",
        "| method | ratio | accepted ÷ drafted | runs |",
        "|---|---|---|---|",
        *(
            f"| {method} | {row['ratio']:.2f} ({row['low']:.2f}..{row['high']:.2f}) | {row['acceptance']:.1%} | {row['runs']} |"
            for method, row in zip(methods, found["methods"], strict=True)
        ),
        "",
        f"(`python -m specviz bench --pair {name} --peers none --max-new-tokens {found['limit']} --repetitions {found['repetitions']} --prompts FILE --methods …`)",
        "",
    ]
