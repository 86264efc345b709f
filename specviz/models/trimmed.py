"""A head over the most frequent tokens alone: a shallow draft would spend half of its time on the rows of the others.

The logits are as wide as ever, -inf for every token without a row, so ids need no mapping outside and sampling stays
exact: such a token has draft probability 0, and the target's own choice is not touched.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Trimmed:
    """A head whose product has columns for the tokens ``ids`` (kept,) alone, of ``out_features`` that there are."""

    ids: Tensor
    out_features: int

    def widen(self, logits: Tensor) -> Tensor:
        """(..., kept) -> (..., vocabulary), -inf for every other token."""
        wide = torch.full((*logits.shape[:-1], self.out_features), -torch.inf, dtype=logits.dtype, device=logits.device)
        return wide.index_copy_(-1, self.ids, logits)


class TrimmedHead(Trimmed, nn.Module):
    """weight (kept, hidden): the rows of the tokens ``ids`` (kept,); logits have ``vocabulary`` columns."""

    bias = None

    def __init__(self, weight: Tensor, ids: Tensor, vocabulary: int):
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("ids", ids.long())
        self.in_features, self.out_features = weight.shape[1], vocabulary

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocabulary)."""
        return self.widen(hidden @ self.weight.t())


def trim(model, ids: Tensor) -> None:
    """Put a head over ``ids`` in place of the model's own; the embedding keeps all its rows."""
    whole = model.get_output_embeddings().weight
    model.config.tie_word_embeddings = False
    model.set_output_embeddings(TrimmedHead(whole.detach()[ids].clone(), ids, whole.shape[0]))
