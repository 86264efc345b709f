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
        if not self.sampling.greedy:
            probabilities = self.probabilities(logits[None])[0]
            token = int(torch.multinomial(probabilities, 1, generator=self.generator))
            return Pick(token, float(probabilities[token]), *self._describe(probabilities), probabilities)
        if self.detail.entropy or self.detail.alternatives:
            probabilities = torch.softmax(logits.float(), dim=-1)
            token = int(logits.argmax())
            return Pick(token, float(probabilities[token]), *self._describe(probabilities))
        # softmax at the maximum is exp(max - logsumexp); the other V - 1 values are not needed.
        logits = logits.float()
        best, token = logits.max(dim=-1)
        confidence = (best - logits.logsumexp(dim=-1)).exp()
        return Pick(int(token), min(float(confidence), 1.0))

    def _describe(self, probabilities: Tensor) -> tuple[float | None, tuple[tuple[int, float], ...]]:
        entropy = None
        if self.detail.entropy:
            entropy = max(float(torch.special.entr(probabilities).sum()), 0.0)
        return entropy, self.alternatives(probabilities)

    def alternatives(self, probabilities: Tensor) -> tuple[tuple[int, float], ...]:
        """The most probable tokens of a distribution (V,): (id, probability), most probable first."""
        count = min(self.detail.alternatives, probabilities.shape[-1])
        if not count:
            return ()
        values, ids = probabilities.topk(count)
        return tuple((i, p) for i, p in zip(ids.tolist(), values.tolist(), strict=True) if p > 0.0)
