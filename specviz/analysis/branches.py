"""What a drafter goes on to draft after each wrong token: many short continuations of prefixes of one sequence.

The continuations share the sequence's cache. Their tokens are appended behind it as one row, each continuation's next
token in each step, and an attention mask lets a token see the true positions before its branching point and its own
branch: one forward a step for all of them, and no copy of the cache (the "tree attention" of SpecInfer, arXiv
2305.09781). Models that cannot be run like this are continued one by one, which also checks the first continuation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specviz.models.forward import SLIDING, GenericSplitStream

# What one forward of a drafter says of its last positions: ids, confidences and margins, (n,) each.
Judge = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]

# Attention between continuations is computed and masked out, so more of them in one row soon costs more than it saves.
MOST_BRANCHES = 64

MASKED_ATTENTION = ("eager", "sdpa")  # the kernels of transformers that take any mask


@dataclass
class Branches:
    """W continuations that begin behind wrong tokens, and what was drafted in them.

    seen (W,): true positions before the wrong token, which stands at position ``seen``. token (W,): the wrong token.
    reach (W,): most tokens to draft behind it. ids, confidence, margin (W, J): what was drafted; ids are -1 from
    where it ended: behind an end-of-sequence token, or at ``reach``.
    """

    seen: np.ndarray
    token: np.ndarray
    reach: np.ndarray
    eos_ids: frozenset[int]

    def __post_init__(self):
        eos = np.isin(self.token, list(self.eos_ids))
        self.reach = np.where(eos, 0, self.reach)
        self.empty()

    def empty(self) -> None:
        """Forget what was drafted."""
        shape = (len(self.seen), int(self.reach.max(initial=0)))
        self.ids = np.full(shape, -1, np.int32)
        self.confidence = np.zeros(shape, np.float32)
        self.margin = np.zeros(shape, np.float32)

    def emptied(self) -> Branches:
        """The same beginnings, nothing drafted."""
        return Branches(self.seen, self.token, self.reach, self.eos_ids)

    def record(self, lines: np.ndarray, step: int, judged: tuple[Tensor, Tensor, Tensor]) -> np.ndarray:
        """Write what `lines` drafted in a step; returns a mask over them: does drafting go on?"""
        ids, confidence, margin = (part.cpu().numpy() for part in judged)
        self.ids[lines, step], self.confidence[lines, step], self.margin[lines, step] = ids, confidence, margin
        return ~np.isin(ids, list(self.eos_ids)) & (self.reach[lines] > step + 1)


class BranchStream(GenericSplitStream):
    """A split stream that can also run continuations of its prefixes side by side. Every branch call must be given the
    same continuations or some of them, each one token; ``rewind`` to the trunk's length forgets them all."""

    def __init__(self, loaded):
        super().__init__(loaded)
        self._owners: Tensor | None = None

    @property
    def takes_any_mask(self) -> bool:
        return getattr(self._config, "_attn_implementation", None) in MASKED_ATTENTION

    def begin(self) -> None:
        """The cache as it is now is the trunk."""
        self._trunk = self.length
        self._owners = torch.empty(0, dtype=torch.long, device=self.device)
        self._places = torch.empty(0, dtype=torch.long, device=self.device)

    def branch(self, ids: Tensor, owners: Tensor, seen: Tensor, step: int, last: int) -> Tensor:
        """One more token for each continuation through layers 0..last-1.

        ids, owners (n,): the tokens and their continuations' numbers. seen (n,): true positions each one sees.
        step: tokens that they had before. Returns hidden states (1, n, d).
        """
        positions = seen + step
        self._owners = torch.cat([self._owners, owners])
        self._places = torch.cat([self._places, positions])
        hidden = self._row.entrance(self._decoder, self._tokens(ids[None]), positions[None])
        given = {}
        for kind in set(self._types[:last]):
            given[kind] = self._for_layers_of(kind, hidden, positions[None], 0)
            given[kind]["attention_mask"] = self._branch_mask(kind, hidden, owners, seen, positions)
        for block, kind in zip(self._blocks[:last], self._types[:last], strict=True):
            hidden = block(hidden, **given[kind])
        return hidden

    def _branch_mask(self, kind: str, hidden: Tensor, owners: Tensor, seen: Tensor, positions: Tensor) -> Tensor:
        """(1, 1, n, slots), 0 where a token may look, else the lowest number: both kinds of attention take that."""
        trunk = torch.arange(self._trunk, device=self.device)
        sees = torch.cat([trunk[None] < seen[:, None], self._owners[None] == owners[:, None]], dim=1)
        if kind == SLIDING:
            places = torch.cat([trunk, self._places])
            sees &= positions[:, None] - places[None] < self._config.sliding_window
        mask = torch.zeros(sees.shape, dtype=hidden.dtype, device=self.device)
        mask.masked_fill_(~sees, torch.finfo(hidden.dtype).min)
        return mask[None, None].to(hidden.device)


def continue_together(
    stream: BranchStream, branches: Branches, last: int, judge: Judge, most: int = MOST_BRANCHES
) -> None:
    """Fill `branches`, up to `most` of them in one row. Layers 0..last-1 draft; the stream holds the whole sequence
    and holds the same afterwards."""
    trunk = stream.length
    waiting = np.flatnonzero(branches.reach > 0)
    for begin in range(0, len(waiting), most):
        lines = waiting[begin : begin + most]
        tokens = branches.token[lines].astype(np.int64)
        stream.begin()
        try:
            step = 0
            while len(lines):
                owners = torch.from_numpy(lines).to(stream.device)
                seen = torch.from_numpy(branches.seen[lines]).to(stream.device)
                ids = torch.from_numpy(tokens).to(stream.device)
                hidden = stream.branch(ids, owners, seen, step, last)
                more = branches.record(lines, step, judge(stream.head(hidden)))
                lines = lines[more]
                tokens = branches.ids[lines, step].astype(np.int64)
                step += 1
        finally:
            stream.rewind(trunk)


def continue_one_by_one(
    step: Callable[[Sequence[int]], Tensor],
    rewind: Callable[[int], None],
    branches: Branches,
    judge: Judge,
    lines: Sequence[int] | None = None,
) -> None:
    """Fill `branches` (or some lines of them) without a mask: the same, slowly.

    step: feeds tokens behind what the model has read, returns logits (1, V). rewind: forgets positions. The model has
    read the whole sequence before; the longest prefixes come first, so that it only ever has to forget.
    """
    lines = np.flatnonzero(branches.reach > 0) if lines is None else np.asarray(lines)
    for line in lines[np.argsort(-branches.seen[lines], kind="stable")]:
        rewind(int(branches.seen[line]))
        token = int(branches.token[line])
        for index in range(int(branches.reach[line])):
            more = branches.record(np.array([line]), index, judge(step([token])))
            token = int(branches.ids[line, index])
            if not more[0]:
                break


def agree(one: Branches, other: Branches, line: int, tolerance: float) -> bool:
    """Did two ways of running a continuation draft the same? Confidences are compared up to the first difference of
    tokens, which must be a near tie."""
    for index in range(min(one.ids.shape[1], other.ids.shape[1])):
        if one.ids[line, index] != other.ids[line, index]:
            return bool(one.margin[line, index] < tolerance)
        if one.ids[line, index] < 0:
            break
        if abs(one.confidence[line, index] - other.confidence[line, index]) > tolerance:
            return False
    return True
