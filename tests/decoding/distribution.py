"""Exact distributions over a toy vocabulary, and the test that a way of sampling has them.

The models here are tables: the logits behind a token depend on that token alone. So the probability of every text of
three tokens can be written down, and a hundred thousand decodes take seconds.
"""

from __future__ import annotations

import itertools

import torch
from scipy.stats import chisquare

from specviz.decoding import Detail, Sampling
from specviz.decoding.acceptance import sampled_prefix
from specviz.decoding.drafters import AssistantDrafter, EarlyExitDrafter
from specviz.decoding.policies import Constant
from specviz.decoding.sampling import Picker
from specviz.decoding.verifiers import FullVerifier, RemainderVerifier

VOCAB = 7
START = 3
CPU = torch.device("cpu")


class TableStream:
    """A Stream whose logits are rows of a table (VOCAB, V)."""

    kind = "table"
    device = CPU

    def __init__(self, table: torch.Tensor):
        self._table = table
        self.length = 0

    def forward(self, ids, keep=None):
        self.length += len(ids)
        keep = len(ids) if keep is None else keep
        return self._table[ids[len(ids) - keep:]]

    def rewind(self, length):
        self.length = min(self.length, length)

    def close(self): ...


class SplitTableStream(TableStream):
    """The same with two layers: an exit behind the first one reads another table. Hidden states are (token, depth)."""

    layers = 2

    def __init__(self, table: torch.Tensor, exit_table: torch.Tensor):
        super().__init__(table)
        self._tables = torch.stack((exit_table, table))
        self._lengths = [0, 0]

    @property
    def length(self):
        return self._lengths[0]

    @length.setter
    def length(self, value):
        self._lengths = [value, value]

    def embed(self, ids):
        return torch.stack((ids, torch.zeros_like(ids)), dim=-1)[None]

    def run(self, hidden, first, last):
        assert len(set(self._lengths[first:last])) == 1, "layers of different length"
        assert bool((hidden[..., 1] == first).all()), "these states do not belong before this layer"
        for layer in range(first, last):
            self._lengths[layer] += hidden.shape[1]
        return torch.stack((hidden[..., 0], torch.full_like(hidden[..., 0], last)), dim=-1)

    def head(self, hidden):
        return self._tables[hidden[0, :, 1] - 1, hidden[0, :, 0]]

    def layer_length(self, layer):
        return self._lengths[layer]


def random_table(seed: int, scale: float = 1.5) -> torch.Tensor:
    return torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed)) * scale


def near(table: torch.Tensor, seed: int, noise: float) -> torch.Tensor:
    return table + torch.randn(table.shape, generator=torch.Generator().manual_seed(seed)) * noise


def exact(table: torch.Tensor, sampling: Sampling) -> dict[tuple[int, ...], float]:
    """Probability of every text of three tokens when the target samples alone."""
    rows = Picker(sampling, Detail(), CPU).probabilities(table).double()
    rows /= rows.sum(dim=-1, keepdim=True)
    return {
        text: float(rows[START, text[0]] * rows[text[0], text[1]] * rows[text[1], text[2]])
        for text in itertools.product(range(VOCAB), repeat=3)
    }


def two_models(target: torch.Tensor, draft: torch.Tensor, picker: Picker):
    return AssistantDrafter(TableStream(draft), picker, frozenset(), VOCAB, VOCAB, 64), FullVerifier(TableStream(target))


def early_exit(target: torch.Tensor, draft: torch.Tensor, picker: Picker):
    stream = SplitTableStream(target, draft)
    return EarlyExitDrafter(stream, 1, picker, frozenset()), RemainderVerifier(stream, 1)


def speculate(target: torch.Tensor, draft: torch.Tensor, sampling: Sampling, draws: int, lookahead: int = 2,
              accept=sampled_prefix, parts=two_models) -> dict[tuple[int, ...], int]:
    """How often each text of three tokens comes out of the core's own drafter, verifier and acceptance.

    parts: two_models, or early_exit, where ``draft`` is what the target says behind its first layer.
    """
    picker = Picker(sampling, Detail(target_probability=False), CPU)
    policy = Constant(lookahead)
    seen: dict[tuple[int, ...], int] = {}
    with torch.inference_mode():
        for _ in range(draws):
            drafter, verifier = parts(target, draft, picker)
            sequence = [START]
            while len(sequence) < 4:
                guess = drafter.propose(sequence, policy, lookahead, 8)
                p = picker.probabilities(verifier.verify(sequence, guess))
                accepted, token = accept(guess.ids, guess.probabilities(VOCAB), p, picker.generator)
                sequence += [*guess.ids[:accepted], token]
                drafter.rewind(len(sequence) - 1)
                verifier.rewind(len(sequence) - 1)
            text = tuple(sequence[1:4])
            seen[text] = seen.get(text, 0) + 1
    return seen


def p_value(seen: dict[tuple[int, ...], int], expected: dict[tuple[int, ...], float]) -> float:
    """Chi-square probability that the counts come from the distribution; rare texts are counted as one."""
    draws = sum(seen.values())
    assert all(expected[text] > 0 for text in seen), "a text that the target alone never gives"
    common = [text for text, p in expected.items() if p * draws >= 5]
    counts = [seen.get(text, 0) for text in common]
    means = [expected[text] * draws for text in common]
    rest = sum(p for text, p in expected.items() if text not in set(common)) * draws
    if rest > 0.5:
        counts.append(draws - sum(counts))
        means.append(rest)
    scale = sum(counts) / sum(means)
    return float(chisquare(counts, [mean * scale for mean in means]).pvalue)
