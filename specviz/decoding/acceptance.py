"""Which drafted tokens stand. Pure functions of draft and target; nothing here knows a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def accepted_prefix(draft_ids: Sequence[int], target_ids: Sequence[int]) -> int:
    """Greedy acceptance: the length of the longest agreeing prefix; (k,), (k+1,) -> 0..k."""
    for index, token in enumerate(draft_ids):
        if token != target_ids[index]:
            return index
    return len(draft_ids)


def sampled_prefix(
    draft_ids: Sequence[int],
    draft_probabilities: Tensor | None,
    target_probabilities: Tensor,
    generator: torch.Generator,
) -> tuple[int, int]:
    """Sampled acceptance; returns how many drafted tokens stand and the target's token that follows them.

    Token i stands with probability min(1, p_i / q_i). The first one that falls is replaced by a draw from
    the positive part of p - q, normalised; after a full acceptance the bonus is drawn from p. The result is
    distributed exactly as sampling from p alone (Leviathan et al., Fast Inference from Transformers via
    Speculative Decoding, 2023, algorithm 1 and appendix A.1).

    draft_ids: k tokens, each drawn from its row of q. draft_probabilities q: (k, V), or None for a drafter
    that is certain of its tokens (q = 1 there). target_probabilities p: (k+1, V), rows sum to 1.
    """
    count = len(draft_ids)
    if count:
        picked = torch.tensor(draft_ids, device=target_probabilities.device)[:, None]
        p = target_probabilities[:count].gather(1, picked)[:, 0]
        q = torch.ones_like(p) if draft_probabilities is None else draft_probabilities.gather(1, picked)[:, 0]
        draws = torch.rand(count, generator=generator, device=p.device)
        # u * q < p rather than u < p / q: a token that the target rules out (p = 0) can never stand.
        stands = (draws * q < p).tolist()
        accepted = stands.index(False) if False in stands else count
    else:
        accepted = 0
    if accepted == count:
        final = target_probabilities[count]
    else:
        final = target_probabilities[accepted].clone()
        if draft_probabilities is None:
            final[draft_ids[accepted]] = 0.0
        else:
            final = (final - draft_probabilities[accepted]).clamp_(min=0.0)
        if float(final.sum()) <= 0.0:
            # p and q are the same up to rounding, so the refusal itself was a rounding event.
            final = target_probabilities[accepted]
    token = int(torch.multinomial(final, 1, generator=generator))
    return accepted, token
