"""From logits to a choice: greedy or sampled, and what the log tells about it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specviz.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. temperature 0 is greedy; the other fields then have no effect.

    top_k: keep the k most probable tokens (None: all). top_p: keep the smallest set whose probability
    reaches p. Applied in this order: temperature, top_k, top_p, to draft and target alike.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self):
        if not 0.0 <= self.temperature <= 100.0:
            raise UsageError(f"temperature={self.temperature}: choose 0 (greedy) to 100")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top_k={self.top_k}: choose 1 or more, or leave it out for all tokens")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top_p={self.top_p}: choose a value above 0 and up to 1")
        if not -(2**63) <= self.seed < 2**63:
            raise UsageError(f"seed={self.seed}: choose a 64-bit whole number")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True)
class Detail:
    """What the log records beside the tokens. Each costs a little time for each token.

    alternatives: how many of the most probable tokens to name. entropy: of the drafter's distribution.
    target_probability: what the target gave to each drafted token and to its own.
    """

    alternatives: int = 0
    entropy: bool = False
    target_probability: bool = True


FULL_DETAIL = Detail(alternatives=5, entropy=True)


@dataclass(frozen=True, slots=True)
class Pick:
    """A chosen token. probabilities: (V,) when sampling, None when greedy."""

    id: int
    confidence: float
    entropy: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()
    probabilities: Tensor | None = None


class Picker:
    """Chooses tokens and describes choices, for one run: it holds the run's random generator."""

    def __init__(self, sampling: Sampling, detail: Detail, device: torch.device):
        self.sampling = sampling
        self.detail = detail
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(sampling.seed)
        # A plain list: transformers' own inspects each signature at every call, which costs more than the arithmetic.
        self._warpers = []
        if not sampling.greedy:
            if sampling.temperature != 1.0:
                self._warpers.append(TemperatureLogitsWarper(sampling.temperature))
            if sampling.top_k is not None:
                self._warpers.append(TopKLogitsWarper(sampling.top_k))
            if sampling.top_p is not None and sampling.top_p < 1.0:
                self._warpers.append(TopPLogitsWarper(sampling.top_p))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Processed distribution: logits (n, V) -> probabilities (n, V), fp32."""
        logits = logits.float()
        for warper in self._warpers:
            logits = warper(None, logits)
        return torch.softmax(logits, dim=-1)

    def pick(self, logits: Tensor) -> Pick:
        """Choose one token from logits (V,)."""
        token, row = self.choose(logits)
        return self.describe(token, row[None])[0]

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Choose one token from logits (V,) and leave it on the device: the token (1,), and what ``describe`` needs
        to tell about the choice, (V,)."""
        if self.sampling.greedy:
            return logits.argmax(dim=-1, keepdim=True), logits
        probabilities = self.probabilities(logits[None])[0]
        return torch.multinomial(probabilities, 1, generator=self.generator), probabilities

    def describe(self, tokens: Tensor, rows: Tensor) -> list[Pick]:
        """What the log tells about k choices: tokens (k,) and rows (k, V) of ``choose``."""
        sampled = not self.sampling.greedy
        probabilities = rows if sampled else torch.softmax(rows.float(), dim=-1)
        confidences = probabilities.gather(1, tokens[:, None])[:, 0].tolist()
        nothing = [None] * len(confidences)
        entropies = nothing
        if self.detail.entropy:
            entropies = torch.special.entr(probabilities).sum(dim=-1).clamp_(min=0.0).tolist()
        alternatives = self._alternatives(probabilities)
        return [
            Pick(token, min(confidence, 1.0), entropy, others, row)
            for token, confidence, entropy, others, row in zip(
                tokens.tolist(), confidences, entropies, alternatives, probabilities if sampled else nothing, strict=True
            )
        ]

    def _alternatives(self, probabilities: Tensor) -> list[tuple[tuple[int, float], ...]]:
        """The most probable tokens of distributions (k, V): (id, probability), most probable first."""
        count = min(self.detail.alternatives, probabilities.shape[-1])
        if not count:
            return [()] * len(probabilities)
        values, ids = (part.tolist() for part in probabilities.topk(count, dim=-1))
        return [
            tuple((token, p) for token, p in zip(*row, strict=True) if p > 0.0) for row in zip(ids, values, strict=True)
        ]
