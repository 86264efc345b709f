"""Rows -> medians, ratios with intervals, tables. Pure: no model, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specviz.bench.measure import Row, read_rows
from specviz.errors import UsageError

_DRAWS = 2000
_LEVEL = 0.95


@dataclass(frozen=True)
class Ratio:
    """How many times faster one engine is than another: the median, and the interval that holds it with 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f}..{self.high:.2f})"


@dataclass(frozen=True)
class Line:
    """One engine over all prompts. ms: median milliseconds a token; spread: its quartiles. refused: why it has no speed."""

    engine: str
    family: str
    method: str
    ms: float
    spread: tuple[float, float]
    tokens: int
    runs: int
    acceptance: float | None
    per_forward: float | None  # tokens per target forward
    stream: str | None
    against: Ratio | None  # times as fast as the baseline
    refused: str | None = None


def lines(rows: Sequence[Row], baseline: str, truth: str | None = None) -> list[Line]:
    """A line for each engine, in the order of the rows. baseline: the engine that all are compared with.

    truth: the engine whose outputs are right (default: the baseline); a differing engine is refused.
    """
    names = list(dict.fromkeys(row.engine for row in sorted(rows, key=lambda row: row.repetition)))
    right = {row.prompt: row.digest for row in rows if row.engine == (truth or baseline) and not row.fault}
    return [_line([row for row in rows if row.engine == name], rows, baseline, right) for name in names]


def ratio(rows: Sequence[Row], ours: str, other: str, seed: int = 0) -> Ratio | None:
    """Seconds a token of ``other`` ÷ those of ``ours``, from runs of the same prompt and repetition.

    The value is the median over prompts of the median over repetitions; the interval is a bootstrap over
    both (prompts drawn anew, and repetitions in each). None where they have no runs in common.
    """
    mine, theirs = (_by_prompt(rows, name) for name in (ours, other))
    pairs = [
        np.array([theirs[prompt][turn] / mine[prompt][turn] for turn in mine[prompt] if turn in theirs[prompt]])
        for prompt in mine if prompt in theirs
    ]
    pairs = [pair for pair in pairs if len(pair)]
    if not pairs:
        return None
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(_DRAWS):
        chosen = generator.integers(len(pairs), size=len(pairs))
        drawn.append(np.median([np.median(generator.choice(pairs[i], len(pairs[i]))) for i in chosen]))
    low, high = np.quantile(drawn, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Ratio(float(np.median([np.median(pair) for pair in pairs])), float(low), float(high))


def table(found: Sequence[Line], baseline: str) -> str:
    """The lines for a person."""
    head = f"{'engine':<44} {'ms/token':>9}  {'quartiles':>15}  {'accepted':>8}  {'per forward':>11}  times as fast as {baseline}"
    body = []
    for line in found:
        if line.refused:
            body.append(f"{line.engine:<44} refused: {line.refused}")
            continue
        accepted = "" if line.acceptance is None else f"{line.acceptance:.0%}"
        forward = "" if line.per_forward is None else f"{line.per_forward:.2f}"
        spread = f"{line.spread[0]:.2f}..{line.spread[1]:.2f}"
        body.append(
            f"{line.engine:<44} {line.ms:>9.2f}  {spread:>15}  {accepted:>8}  {forward:>11}  {line.against or ''}"
        )
    return "\n".join([head, *body])


def pairings(rows: Sequence[Row]) -> list[tuple[str, str, Ratio]]:
    """Each of our engines against each peer's of the same method, and against our own plain decoding."""
    engines = {row.engine: row for row in rows if not row.fault}
    own_plain = next((name for name, row in engines.items() if row.family == "ours" and row.method == "autoregressive"), None)
    found = []
    for name, row in engines.items():
        if row.family != "ours":
            continue
        others = [other for other, its in engines.items() if its.family != "ours" and its.method == row.method]
        if own_plain not in (None, name):
            others.append(own_plain)
        for other in others:
            result = ratio(rows, name, other)
            if result is not None:
                found.append((name, other, result))
    return found


def race_of_draft(path: Path, draft: str) -> dict:
    """The ratios to plain decoding in a finished measurement, rounded, for the draft's card. UsageError where the file is
    none, is not of this draft, or knows other methods or wrong outputs."""
    setting, rows = read_rows(path)
    if (setting.get("draft") or "").partition(":")[0] != draft:
        raise UsageError(f"--bench {path}: measured with {setting.get('draft')}, not with {draft}")
    plain, *others = lines(rows, rows[0].engine) if rows else [None]
    if plain is None or plain.method != "autoregressive" or any(line.refused or line.acceptance is None for line in others):
        raise UsageError(f"--bench {path}: name draft methods, and have plain decoding and right outputs in it")
    return {
        "threads": setting["threads"], "limit": setting["limit"], "prompts": len(setting["prompts"]),
        "repetitions": 1 + max(row.repetition for row in rows),
        "methods": [
            {"engine": line.engine, "ratio": round(line.against.value, 3), "low": round(line.against.low, 3),
             "high": round(line.against.high, 3), "acceptance": round(line.acceptance, 4), "runs": line.runs}
            for line in others
        ],
    }  # fmt: skip


def _line(own: list[Row], rows: Sequence[Row], baseline: str, right: dict[str, str]) -> Line:
    first = own[0]
    fault = next((row.fault for row in own if row.fault), None)
    wrong = sorted({row.prompt for row in own if not row.fault and row.prompt in right and row.digest != right[row.prompt]})
    refused = fault or (f"another output on {len(wrong)} prompts ({wrong[0]}, ...)" if wrong else None)
    good = [row for row in own if not row.fault and row.tokens]
    if not good:
        return Line(first.engine, first.family, first.method, 0.0, (0.0, 0.0), 0, 0, None, None, None, None,
                    refused or "no tokens")
    by_prompt: dict[str, list[float]] = {}
    for row in good:
        by_prompt.setdefault(row.prompt, []).append(1000 * row.seconds / row.tokens)
    low, middle, high = (
        float(np.median([np.quantile(values, at) for values in by_prompt.values()])) for at in (0.25, 0.5, 0.75)
    )
    drafted = sum(row.drafted or 0 for row in good)
    iterations = sum(row.iterations or 0 for row in good)
    tokens = sum(row.tokens for row in good)
    return Line(
        first.engine, first.family, first.method, middle, (low, high), tokens, len(good),
        sum(row.accepted or 0 for row in good) / drafted if drafted else None,
        tokens / iterations if iterations and drafted else None,
        good[0].stream, None if refused else ratio(rows, first.engine, baseline), refused,
    )


def _by_prompt(rows: Sequence[Row], engine: str) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.engine == engine and not row.fault and row.tokens:
            found.setdefault(row.prompt, {})[row.repetition] = row.seconds / row.tokens
    return found
