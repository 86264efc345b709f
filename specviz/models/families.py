"""What differs between model families when their layers are run apart: one row per architecture.

Nothing else in the package knows these differences. A row says where the layers and the final norm are, how token
embeddings become hidden states, what a layer calls its cache, and which mask a layer needs. Everything that
transformers already answers for all families (decoder, input embeddings, LM head) is asked there.

Checked against transformers 5.24; a test holds every row equal to the model's own forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from specviz.errors import UsageError

# (decoder, token embeddings (1, n, e), positions (1, n)) -> hidden states (1, n, d)
Entrance = Callable[[nn.Module, Tensor, Tensor], Tensor]


def _plain(decoder: nn.Module, embedded: Tensor, positions: Tensor) -> Tensor:
    return embedded  # positions enter by rotation, inside the layers


def _gpt2_positions(decoder: nn.Module, embedded: Tensor, positions: Tensor) -> Tensor:
    return embedded + decoder.wpe(positions).to(embedded.device)


def _opt_positions(decoder: nn.Module, embedded: Tensor, positions: Tensor) -> Tensor:
    placed = decoder.embed_positions(None, 0, position_ids=positions)
    if decoder.project_in is not None:  # the 350m model embeds in half its width
        embedded = decoder.project_in(embedded)
    return embedded + placed.to(embedded.device)


@dataclass(frozen=True)
class Family:
    """How to run one architecture layer by layer; attribute names are looked up on its decoder."""

    title: str  # as people call it, for messages
    layers: str = "layers"
    exits: tuple[str, ...] = ("norm",)  # applied in this order before the LM head; one that is None is left out
    entrance: Entrance = _plain
    rotary: str | None = "one"  # "one" table for all layers, "by type" of layer, or None
    cache_argument: str = "cache"
    # "causal" everywhere; "window" everywhere where the config sets one; "by type": config.layer_types decides
    mask: str = "causal"
    softcap: bool = False  # the config may squash the logits (final_logit_softcapping)


SPLIT: dict[str, Family] = {
    "llama": Family("Llama"),
    "mistral": Family("Mistral", mask="window"),
    "qwen2": Family("Qwen2", mask="by type"),
    "qwen3": Family("Qwen3", mask="by type"),
    "gemma": Family("Gemma"),
    "gemma2": Family("Gemma 2", mask="by type", softcap=True),
    "gemma3_text": Family("Gemma 3 (text)", mask="by type", rotary="by type", softcap=True),
    "phi": Family("Phi", exits=("final_layernorm",)),
    "gpt_neox": Family("GPT-NeoX (Pythia)", exits=("final_layer_norm",), cache_argument="layer_past"),
    "codegen": Family("CodeGen", layers="h", exits=("ln_f",)),
    "gpt2": Family("GPT-2", layers="h", exits=("ln_f",), entrance=_gpt2_positions, rotary=None),
    "opt": Family(
        "OPT", exits=("final_layer_norm", "project_out"), entrance=_opt_positions, rotary=None
    ),
}


def known_families() -> str:
    """The families whose layers can be run apart, as a list in words."""
    return ", ".join(row.title for row in SPLIT.values())


def family_of(model: nn.Module, name: str) -> Family:
    """The row of a model. UsageError, naming it and the known families, if its layers cannot be run apart."""
    config = model.config
    row = SPLIT.get(config.model_type)
    if row is not None:
        return row
    kind = "an encoder-decoder model" if config.is_encoder_decoder else f"of the architecture {config.model_type!r}"
    raise UsageError(
        f"{name} is {kind}, whose layers cannot be run apart here: early exit and the layer lens know "
        f"{known_families()}; use a draft model or prompt lookup with this one"
    )
