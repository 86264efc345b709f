"""The formulas of the LayerSkip recipe (arXiv 2404.16710, section 4), free of any tensor library.

Layers are counted from 0; exit ``l`` is the exit after layer ``l``, so exit ``layers - 1`` is the full model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

CURRICULA = ("rotational", "gradual", "all")


def depth_scale(layer: int, layers: int) -> float:
    """D(l) = e^(l·ln2/(L-1)) - 1: 0 at the first layer, 1 at the last."""
    return math.expm1(layer * math.log(2) / (layers - 1)) if layers > 1 else 0.0


def time_scale(step: int, steps: int) -> float:
    """S(t) = e^(t·ln2/(T-1)) - 1, for training from scratch: 0 at the first step, 1 at the last."""
    return math.expm1(min(step, steps - 1) * math.log(2) / (steps - 1)) if steps > 1 else 1.0


def exit_weight(layer: int, layers: int, scale: float) -> float:
    """e(l) before normalisation: scale·(0+1+…+l), and for the last layer (L-1) + scale·(0+1+…+(L-2))."""
    if layer < layers - 1:
        return scale * layer * (layer + 1) / 2
    return (layers - 1) + scale * (layers - 2) * (layers - 1) / 2


@dataclass(frozen=True)
class Recipe:
    """What distinguishes one training from another. The defaults of ``layerskip`` are in ``config.py``.

    exit_power flattens the published weights: e(l)^exit_power. 1 is the paper; below 1 the early exits weigh more.
    exit_rows is the share of a batch that the exits before the last are trained on; the last always sees all of it.
    own_from is the share of the training after which the exits learn from the full model instead of the data (1: never, as
    published): its distribution, sharpened by the power own_sharpness, since under greedy decoding only its choice counts.
    From then on exit_power is own_power, and every step also trains the exits of the first half on own_texts pieces of text
    that the full model wrote itself, because that is what a draft is asked to continue.
    """

    dropout: float = 0.0
    exits: bool = False
    exit_scale: float = 1.0
    exit_power: float = 1.0
    exit_rows: float = 1.0
    curriculum: str = "rotational"
    rotation: int = 4
    own_from: float = 1.0
    own_power: float = 1 / 6
    own_sharpness: float = 2.0
    own_texts: int = 4

    def dropout_rate(self, layer: int, layers: int, step: int, steps: int) -> float:
        """p(l, t) = S(t)·D(l)·p_max, the probability that a sample skips the layer at this step."""
        return time_scale(step, steps) * depth_scale(layer, layers) * self.dropout

    def enabled_exits(self, layers: int, step: int, steps: int) -> tuple[int, ...]:
        """The exits whose loss is taken at this step, ascending; the full model is always the last of them."""
        last = layers - 1
        if not self.exits:
            return (last,)
        if self.curriculum == "rotational":
            chosen = {layer for layer in range(layers) if layer % self.rotation == step % self.rotation}
        elif self.curriculum == "gradual":
            chosen = set(range(max(0, last - int(step * 2 * layers / steps)), layers))
        else:
            chosen = set(range(layers))
        return tuple(sorted(layer for layer in chosen | {last} if self.weight(layer, layers) > 0))

    def weight(self, layer: int, layers: int, own: bool = False) -> float:
        """The weight of an exit before normalisation; 0 for the first layer, whose published weight is 0."""
        published = exit_weight(layer, layers, self.exit_scale)
        return published ** (self.own_power if own else self.exit_power) if published > 0 else 0.0

    def exit_weights(self, layers: int, step: int, steps: int) -> dict[int, float]:
        """exit -> weight, summing to 1 over the exits in use at this step."""
        own = self.learns_own(step, steps)
        weights = {layer: self.weight(layer, layers, own) for layer in self.enabled_exits(layers, step, steps)}
        total = sum(weights.values())
        return {layer: weight / total for layer, weight in weights.items()} if total else {layers - 1: 1.0}

    def learns_own(self, step: int, steps: int) -> bool:
        """Whether the exits learn from the full model at this step."""
        return self.exits and step >= self.own_from * steps

    def own_exits(self, layers: int) -> tuple[int, ...]:
        """The exits that learn from text of the model's own, all at every step: those of the first half of its depth."""
        return tuple(layer for layer in range(layers // 2) if self.weight(layer, layers) > 0)
