"""Runs and probes made by hand, without a model: easy and hard stretches of text, every outcome, hostile pieces."""

from __future__ import annotations

import re

import numpy as np

from specviz.analysis.as_trace import as_trace
from specviz.analysis.cost import iteration_seconds
from specviz.analysis.probe import Probe
from specviz.analysis.simulate import Policy, simulate
from specviz.trace import DraftToken, Footer, Header, Iteration, TargetToken, Trace

TEXT = (
    "A river does not hurry. It finds the lowest stone, waits behind it, and in the end goes round.\n\n"
    "def total(prices: list[float]) -> float:\n    \"\"\"Sum of all prices.\"\"\"\n    result = 0.0\n"
    "    for price in prices:\n        result += price\n    return result\n\n"
    "川は急がない。低い石を見つけて、その後ろで待つ。 <b>&amp;</b> 🙂"
)
PIECES = tuple(re.findall(r"\s?[A-Za-z]+|\s?\d+|\n+| {2,}|\s?[^\sA-Za-z\d]", TEXT))


def probe(layers: int = 12, exit_layers: bool = True, seed: int = 0, limit: int | None = None) -> Probe:
    """A probe over PIECES whose drafter is right in easy stretches and wrong in hard ones; later exits are better."""
    rng = np.random.default_rng(seed)
    n = len(PIECES)
    rows = tuple(range(1, layers)) if exit_layers else (0,)
    output = np.arange(100, 100 + n)
    # How easy each position is: slow waves, as real text has them.
    ease = 0.62 + 0.35 * np.sin(np.arange(n) / 5.0 + seed) + rng.normal(0, 0.1, n)
    luck = rng.random(n)
    ids = np.zeros((len(rows), n), np.int32)
    confidence = np.zeros((len(rows), n), np.float32)
    for number, row in enumerate(rows):
        skill = 1 - np.exp(-row / (0.2 * layers)) if exit_layers else 0.9
        chance = np.clip(ease + 0.38, 0.05, 0.985) * skill
        ids[number] = np.where(luck < chance, output, 50 + number)
        confidence[number] = np.clip(chance + rng.normal(0, 0.14, n), 0.03, 0.999)
    wrong = ids != output
    lines = int(wrong.sum())
    index = np.full(ids.shape, -1, np.int32)
    index[wrong] = np.arange(lines)
    tail = 19
    return Probe(
        kind="early-exit" if exit_layers else "assistant", target="made-up", draft=None if exit_layers else "made-up-draft",
        prompt="Tell me of a river.", prompt_ids=(1, 2, 3, 4), output_ids=tuple(int(i) for i in output), pieces=PIECES, tail="", draft_context=4096,
        eos_ids=(2,), limit=limit or n, end="limit", offset=4, layers=layers, rows=rows, max_lookahead=tail + 1,
        draft_ids=ids, confidence=confidence, margin=np.ones_like(confidence),
        target_probability=np.full(n, 0.7, np.float32), target_margin=np.ones(n, np.float32), wrong_index=index,
        wrong_ids=np.full((lines, tail), 60, np.int32),
        wrong_confidence=np.clip(rng.beta(2, 3.5, (lines, tail)), 0, 1).astype(np.float32),
        wrong_margin=np.ones((lines, tail), np.float32),
        texts={**{int(i): piece for i, piece in zip(output, PIECES, strict=True)}, 60: " so",
               **{50 + k: (" the", " and", "\n", " of", " a", "\t", "。")[k % 7] for k in range(len(rows))}},
    )  # fmt: skip


def run(policy: str = "dynamic", exit_layer: int | None = 4, lookahead: int = 8, threshold: float = 0.45) -> Trace:
    """A run over PIECES with times, as early exit (12 layers) or with a draft model (``exit_layer=None``)."""
    data = probe(exit_layers=exit_layer is not None)
    threshold = threshold if policy == "dynamic" else 0.0
    simulation = simulate(data, Policy(policy, lookahead, threshold), exit_layer)
    trace = as_trace(data, simulation, iteration_seconds(costs(), simulation, exit_layer))
    spent = sum(step.draft_seconds + step.verify_seconds for step in trace.iterations)
    footer = trace.footer
    trace.footer = Footer(
        footer.end, footer.tokens, footer.iterations, footer.drafted, footer.accepted, spent * 1.06, 0.02, footer.tail
    )
    return trace


class MadeUpCosts:
    """A made-up machine that answers what ``Costs`` answers: 1 ms a layer, a little more for more tokens, 5 % spread."""

    behind_full = (0.0002, 0.0002, 0.0002)

    def __init__(self, layers: int = 12):
        self.layers = layers

    def verify(self, tokens, level: int = 0):
        return 0.001 * (self.layers + 1) * (0.98 + 0.02 * np.asarray(tokens, float)) * self._spread(level)

    def draft_forward(self, exit_layer, level: int = 0) -> float:
        return (0.002 if exit_layer is None else 0.001 * exit_layer + 0.0009) * self._spread(level)

    def cost_ratio(self, exit_layer) -> float:
        return self.draft_forward(exit_layer) / float(self.verify(1))

    def drafting(self, exit_layer, drafted, behind_full=0, level: int = 0):
        drafted = np.asarray(drafted)
        if exit_layer is None:
            return drafted * self.draft_forward(None, level) + (drafted > 0) * np.asarray(behind_full) * 0.0002
        return drafted * self.draft_forward(exit_layer, level) + 0.001 * exit_layer * self._spread(level)

    def verifying(self, exit_layer, drafted, level: int = 0):
        part = 1 if exit_layer is None else (self.layers + 1 - exit_layer) / (self.layers + 1)
        return part * self.verify(np.asarray(drafted) + 1, level)

    def loop(self, drafted, level: int = 0):
        return 0.0003 + np.asarray(drafted) * 0.00005

    def plain_token(self, level: int = 0) -> float:
        return float(self.verify(1, level)) + 0.0003

    @staticmethod
    def _spread(level: int) -> float:
        return (1.0, 0.95, 1.06)[level]


def costs(layers: int = 12) -> MadeUpCosts:
    return MadeUpCosts(layers)


def small() -> Trace:
    """Three iterations that a test can count by hand: two accepted of three, all of two, none of one; E = 2 of 6."""

    def draft(*pieces: tuple[str, float]) -> tuple[DraftToken, ...]:
        return tuple(DraftToken(10 + n, text, confidence, target_probability=0.5) for n, (text, confidence) in enumerate(pieces))

    header = Header(
        method={"name": "early-exit-dynamic", "lookahead": 3, "threshold": 0.4, "exit_layer": 2},
        target={"name": "made-up", "layers": 6}, draft=None, prompt="Hi", prompt_ids=(1, 2), limit=9,
        prompt_pieces=("H", "i"),
    )  # fmt: skip
    steps = [
        Iteration(0, 2, draft((" a", 0.9), ("\n", 0.8), ("<b>", 0.7)), "length", 2, TargetToken(20, " c", "correction", 0.6),
                  draft_seconds=0.003, verify_seconds=0.002),
        Iteration(1, 5, draft((" d", 0.6), (" e", 0.3)), "confidence", 2, TargetToken(21, " f", "bonus", 0.7),
                  draft_seconds=0.002, verify_seconds=0.002),
        Iteration(2, 8, draft((" g", 0.2)), "confidence", 0, TargetToken(22, "\u200f", "correction", 0.9),
                  draft_seconds=0.001, verify_seconds=0.002),
    ]  # fmt: skip
    return Trace(header, steps, Footer("limit", 7, 3, 6, 4, 0.015, 0.01))
