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

    The published recipe is ``Recipe(dropout=0.1, exits=True)``. What may be turned beyond it:

    * exit_power flattens the published weights: e(l)^exit_power; 0 makes all exits equal.
    * exit_depth: only exits in this share of the depth are trained beside the last; later ones agree with it anyway.
    * last_share: the full model's share of the weights, instead of what the formula gives it (0: the formula).
    * exit_rows: the share of a batch that the exits before the last are trained on.
    * own_from: the share of the training after which the exits learn the full model's distribution instead of the data
      (1: never), and, at every step, also from own_texts pieces of text that the full model wrote itself, because that is
      what a draft is asked to continue.
    """

    dropout: float = 0.0
    exits: bool = False
    exit_scale: float = 1.0
    exit_power: float = 1.0
    exit_depth: float = 1.0
    last_share: float = 0.0
    exit_rows: float = 1.0
    curriculum: str = "rotational"
    rotation: int = 4
    own_from: float = 1.0
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
        chosen = {layer for layer in chosen if layer < self.exit_depth * layers and self.weight(layer, layers) > 0}
        return tuple(sorted(chosen | {last}))

    def weight(self, layer: int, layers: int) -> float:
        """The weight of an exit before normalisation; 0 for the first layer, whose published weight is 0."""
        published = exit_weight(layer, layers, self.exit_scale)
        return published**self.exit_power if published > 0 else 0.0

    def exit_weights(self, layers: int, step: int, steps: int) -> dict[int, float]:
        """exit -> weight, summing to 1 over the exits in use at this step."""
        weights = {layer: self.weight(layer, layers) for layer in self.enabled_exits(layers, step, steps)}
        last = weights.pop(layers - 1)
        early = sum(weights.values())
        if not early:
            return {layers - 1: 1.0}
        if self.last_share:
            last = early * self.last_share / (1 - self.last_share)
        return {layer: weight / (early + last) for layer, weight in {**weights, layers - 1: last}.items()}

    def learns_own(self, step: int, steps: int) -> bool:
        """Whether the exits learn from the full model at this step."""
        return self.exits and step >= self.own_from * steps

    def own_exits(self, layers: int) -> tuple[int, ...]:
        """The exits that learn from text of the model's own, all at every step: those of the first half of its depth."""
        return tuple(layer for layer in range(layers // 2) if self.weight(layer, layers) > 0)
