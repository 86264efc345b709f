"""One model over one growing sequence: what the decoding core needs of a model, and nothing more.

A stream holds the cache of one sequence. ``forward`` appends positions, ``rewind`` takes the last ones
back. The core is written against these protocols alone, so the same loop runs on the public forward of
any transformers model (here), on a forward split by layers (``forward.py``) and on the lean layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache

from specviz.models.loading import LoadedModel


class Stream(Protocol):
    """A model over one sequence. ``length`` positions are in its cache."""

    kind: str  # how the layers are run, for the log: "public", "split", "lean"
    length: int
    device: torch.device

    def forward(self, ids: Tensor, keep: int | None = None) -> Tensor:
        """Append token ids (n,) and return the logits of the last ``keep`` (default: all) of them: (keep, V).

        keep=0 computes no logits: a prefill.
        """

    def rewind(self, length: int) -> None:
        """Forget every position from ``length`` on, in all layers."""

    def close(self) -> None:
        """Free the cache. The stream is of no use afterwards; closing twice is allowed."""


class SplitStream(Stream, Protocol):
    """A stream whose layers can be run apart, for early exit and the layer lens.

    ``length`` is that of the first layer. Between ``run`` calls layers may be of different length;
    ``rewind`` makes them equal again.
    """

    layers: int

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids (n,) at the positions behind the first layer's cache -> hidden states (1, n, d)."""

    def run(self, hidden: Tensor, first: int, last: int) -> Tensor:
        """Run layers first..last-1 over hidden states (1, n, d), appending to the caches of these layers."""

    def head(self, hidden: Tensor) -> Tensor:
        """Final norm and LM head: hidden states (1, n, d) -> logits (n, V)."""

    def layer_length(self, layer: int) -> int:
        """Positions in the cache of one layer."""


def ids_tensor(ids: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(ids, dtype=torch.long, device=device)


class PublicStream:
    """Any decoder-only transformers model through its own forward."""

    kind = "public"

    def __init__(self, loaded: LoadedModel):
        self._model = loaded.model
        self.device = loaded.device
        # Without a config every layer keeps all its positions, so that rewinding stays exact
        # for sliding-window models too; their masks, not their caches, make the window.
        self._cache: DynamicCache | None = DynamicCache()
        self.length = 0

    def forward(self, ids: Tensor, keep: int | None = None) -> Tensor:
        keep = len(ids) if keep is None else keep
        if len(ids) == 0:
            return torch.empty(0, 0, device=self.device)
        positions = torch.arange(self.length, self.length + len(ids), device=self.device)[None]
        # logits_to_keep=0 would mean all of them, so a prefill computes one row and drops it.
        out = self._model(ids[None], cache=self._cache, position_ids=positions, use_cache=True,
                          logits_to_keep=max(keep, 1))
        self.length += len(ids)
        return out.logits[0, -keep:] if keep else out.logits[0, :0]

    def rewind(self, length: int) -> None:
        if length < self.length:
            self._cache.crop(length - self.length)
            self.length = length

    def close(self) -> None:
        self._cache = None


class EncoderDecoderStream:
    """The decoder of an encoder-decoder model; the encoder runs once, when the stream is opened."""

    kind = "public"

    def __init__(self, loaded: LoadedModel, encoder_ids: Sequence[int]):
        self._model = loaded.model
        self.device = loaded.device
        ids = ids_tensor(encoder_ids, self.device)[None]
        self._encoded = self._model.get_encoder()(ids)
        self._cache: EncoderDecoderCache | None = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self.length = 0

    def forward(self, ids: Tensor, keep: int | None = None) -> Tensor:
        keep = len(ids) if keep is None else keep
        if len(ids) == 0:
            return torch.empty(0, 0, device=self.device)
        out = self._model(decoder_input_ids=ids[None], encoder_outputs=self._encoded, cache=self._cache,
                          use_cache=True)
        self.length += len(ids)
        return out.logits[0, -keep:] if keep else out.logits[0, :0]

    def rewind(self, length: int) -> None:
        if length < self.length:
            self._cache.crop(length - self.length)
            self.length = length

    def close(self) -> None:
        self._cache = self._encoded = None


def open_stream(loaded: LoadedModel, *, encoder_ids: Sequence[int] | None = None, length: int = 0) -> Stream:
    """The best stream for this model. ``length``: positions it must have room for (0: unknown).

    encoder_ids: what the encoder reads; needed for, and only for, encoder-decoder models.
    """
    if loaded.is_encoder_decoder:
        return EncoderDecoderStream(loaded, encoder_ids)
    from specviz.models import lean  # lean streams build on this module's protocols

    return lean.open_lean_stream(loaded, length) or PublicStream(loaded)


def open_split_stream(loaded: LoadedModel, *, length: int = 0) -> SplitStream:
    """A stream whose layers can be run apart. UsageError for a family that cannot be split."""
    from specviz.models import forward, lean  # both build on this module

    return lean.open_lean_stream(loaded, length) or forward.open_split_stream(loaded, length)


def layer_count(loaded: LoadedModel) -> int:
    """Number of layers of a decoder-only model. UsageError for a family that cannot be split."""
    from specviz.models.families import family_of

    row = family_of(loaded.model, loaded.name)
    return len(getattr(loaded.model.get_decoder(), row.layers))
