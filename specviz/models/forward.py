"""A forward that is split by layers, for every family of the table: run layers a..b, exit, rewind.

This is what early exit and the layer lens need and what transformers' public forward does not offer. The layers,
norms, embeddings and heads are the model's own modules, called with what their model would give them, so weights,
hooks (accelerate's device placement and offload among them) and numbers are the model's own. Nothing of the model or
its config is changed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

from specviz.models.families import family_of
from specviz.models.loading import LoadedModel

FULL, SLIDING = "full_attention", "sliding_attention"


class GenericSplitStream:
    """SplitStream (see streams.py) over a transformers decoder with a shared cache for all its layers.

    Layers may be of different length between calls, in early exit by one draft. Each keeps all its positions,
    sliding-window models too (their masks make the window), so that any position can be taken back.
    """

    kind = "split"

    def __init__(self, loaded: LoadedModel):
        """UsageError if the model's family is not in the table."""
        model = loaded.model
        self._row = family_of(model, loaded.name)
        self._config = model.config
        self._decoder: nn.Module = model.get_decoder()
        self._tokens: nn.Module = model.get_input_embeddings()
        self._lm_head: nn.Module = model.get_output_embeddings()
        self._vocab_size = loaded.vocab_size
        self._blocks: nn.ModuleList = getattr(self._decoder, self._row.layers)
        self._exits = [
            part for part in (getattr(self._decoder, name, None) for name in self._row.exits) if part is not None
        ]
        self._softcap = getattr(self._config, "final_logit_softcapping", None) if self._row.softcap else None
        self._types = self._layer_types()
        self._cache: DynamicCache | None = DynamicCache()  # without a config: no layer forgets by itself
        self.layers = len(self._blocks)
        self.device = loaded.device

    def _layer_types(self) -> list[str]:
        count = len(self._blocks)
        if self._row.mask == "by type":
            return list(self._config.layer_types)[:count]
        windowed = self._row.mask == "window" and self._config.sliding_window is not None
        return [SLIDING if windowed else FULL] * count

    @property
    def length(self) -> int:
        return self.layer_length(0)

    def layer_length(self, layer: int) -> int:
        """Positions in the cache of one layer."""
        return self._cache.get_seq_length(layer)

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids (n,) at the positions behind the first layer's cache -> hidden states (1, n, d)."""
        positions = self._positions(self.length, len(ids), self.device)
        return self._row.entrance(self._decoder, self._tokens(ids[None]), positions)

    def run(self, hidden: Tensor, first: int, last: int) -> Tensor:
        """Run layers first..last-1 over hidden states (1, n, d), appending n positions to each of them.

        The layers must be equally long, and their common length is where the positions begin. ValueError else.
        After an exception some of the layers may have been appended to: rewind.
        """
        start = self._common_length(first, last)
        positions = self._positions(start, hidden.shape[1], hidden.device)
        given = {
            kind: self._for_layers_of(kind, hidden, positions, first) for kind in set(self._types[first:last])
        }
        for block, kind in zip(self._blocks[first:last], self._types[first:last], strict=True):
            hidden = block(hidden, **given[kind])
        return hidden

    def head(self, hidden: Tensor) -> Tensor:
        """Final norm and LM head: hidden states (1, n, d) -> logits (n, V), on the stream's device."""
        for part in self._exits:
            hidden = part(hidden)
        logits = self._lm_head(hidden)[0].to(self.device)
        if self._softcap is not None:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits

    def forward(self, ids: Tensor, keep: int | None = None) -> Tensor:
        """Append token ids (n,) in all layers; logits of the last ``keep`` (default: all): (keep, V)."""
        keep = len(ids) if keep is None else keep
        if len(ids) == 0:
            return torch.empty(0, self._vocab_size, device=self.device)
        hidden = self.run(self.embed(ids), 0, self.layers)
        if keep == 0:
            return torch.empty(0, self._vocab_size, device=self.device)
        return self.head(hidden[:, -keep:])

    def rewind(self, length: int) -> None:
        """Forget every position from ``length`` on, in every layer; afterwards all layers are equally long.

        ValueError if a layer has fewer positions than that: they cannot be made up.
        """
        lengths = [self.layer_length(layer) for layer in range(self.layers)]
        if min(lengths) < length:
            raise ValueError(f"rewind to {length}: layer {lengths.index(min(lengths))} holds only {min(lengths)} positions")
        for layer, have in zip(self._cache.layers, lengths, strict=False):
            layer.crop(length - have)  # by a negative count

    def close(self) -> None:
        """Free the cache."""
        self._cache = None

    def _common_length(self, first: int, last: int) -> int:
        if not 0 <= first < last <= self.layers:
            raise ValueError(f"run {first}..{last}: this model has layers 0..{self.layers - 1}")
        lengths = {self.layer_length(layer) for layer in range(first, last)}
        if len(lengths) > 1:
            raise ValueError(f"run {first}..{last}: these layers hold different numbers of positions; rewind first")
        return lengths.pop()

    @staticmethod
    def _positions(start: int, count: int, device: torch.device) -> Tensor:
        return torch.arange(start, start + count, device=device)[None]

    def _for_layers_of(self, kind: str, hidden: Tensor, positions: Tensor, first: int) -> dict:
        """What layers of one kind of attention are given beside the hidden states."""
        make_mask = create_sliding_window_causal_mask if kind == SLIDING else create_causal_mask
        mask = make_mask(
            config=self._config,
            inputs_embeds=hidden,
            attention_mask=None,
            cache=self._cache,
            position_ids=positions,
            layer_idx=first,  # by itself it would measure layer 0, which may already hold the drafts
        )
        given = {"attention_mask": mask, "position_ids": positions, self._row.cache_argument: self._cache}
        if self._row.rotary == "one":
            given["position_embeddings"] = self._decoder.rotary_emb(hidden, position_ids=positions)
        elif self._row.rotary == "by type":
            given["position_embeddings"] = self._decoder.rotary_emb(hidden, positions, kind)
        return given


def open_split_stream(loaded: LoadedModel, length: int = 0) -> GenericSplitStream:
    """A stream whose layers can be run apart. ``length``: positions it must have room for (0: unknown).

    UsageError if the model's family is not known.
    """
    return GenericSplitStream(loaded)
