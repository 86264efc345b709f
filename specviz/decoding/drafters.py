"""Where guesses come from. A drafter proposes; the policy says when it is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from specviz.decoding.policies import StopPolicy
from specviz.decoding.sampling import Pick, Picker
from specviz.models.streams import SplitStream, Stream, ids_tensor

_ROWS = 32  # distributions of a draft that are held at once, of which each may be a large vocabulary wide


@dataclass(slots=True)
class Draft:
    """What one draft phase produced. exit_states: (1, m, d), hidden states behind the drafter's last layer of
    the m positions that the target has not seen yet, the last drafted one included (early exit only)."""

    picks: list[Pick] = field(default_factory=list)
    stop: str = "length"
    exit_states: Tensor | None = None

    @property
    def ids(self) -> list[int]:
        return [pick.id for pick in self.picks]

    def probabilities(self, size: int) -> Tensor | None:
        """The drafter's distributions (k, size), or None where it has none. Shorter rows are filled with 0:
        tokens that the drafter does not know have draft probability 0."""
        if not self.picks or self.picks[0].probabilities is None:
            return None
        rows = torch.stack([pick.probabilities for pick in self.picks])
        return torch.nn.functional.pad(rows, (0, size - rows.shape[1]))


class Drafter(Protocol):
    def prefill(self, sequence: Sequence[int]) -> None:
        """Read all of the sequence but its last token."""

    def propose(self, sequence: Sequence[int], policy: StopPolicy, lookahead: int, budget: int) -> Draft:
        """Guess the tokens behind the sequence: at most ``lookahead`` (the policy's) and ``budget`` of them."""

    def rewind(self, length: int) -> None:
        """The sequence's positions from ``length`` on will change."""

    def close(self) -> None: ...


class NoDrafter:
    """Guesses nothing: plain autoregressive decoding is speculation with empty drafts."""

    def prefill(self, sequence: Sequence[int]) -> None: ...

    def propose(self, sequence: Sequence[int], policy: StopPolicy, lookahead: int, budget: int) -> Draft:
        return Draft()

    def rewind(self, length: int) -> None: ...

    def close(self) -> None: ...


def draft_tokens(
    step: Callable[[Tensor], Tensor],
    unread: Tensor,
    picker: Picker,
    policy: StopPolicy,
    lookahead: int,
    budget: int,
    eos_ids: frozenset[int],
) -> Draft:
    """Draft token by token until the policy, the budget or an end-of-sequence token says stop.

    step: feeds token ids (m,) to the drafting model, returns the logits (V,) behind the last one.
    unread: ids (m,) of the sequence that the drafting model has not read yet, the last one included.
    """
    draft = Draft(stop=policy.reason if lookahead <= budget else "budget")
    # Where the policy looks at no confidence, tokens are fed on as they are and looked at together: a GPU is waited for
    # once, behind the last. On a CPU looking costs nothing, and an end is seen when it comes.
    sees = unread.device.type == "cpu"
    tokens, rows, feed = [], [], unread
    for left in reversed(range(min(lookahead, budget))):
        feed, row = picker.choose(step(feed))
        tokens.append(feed)
        rows.append(row)
        if left and not policy.threshold and len(rows) < _ROWS and not (sees and int(feed) in eos_ids):
            continue
        several = (torch.cat(tokens), torch.stack(rows)) if len(rows) > 1 else (feed, row[None])
        if _take(draft, picker.describe(*several), policy, eos_ids):
            break
        tokens, rows = [], []
    return draft


def _take(draft: Draft, picks: list[Pick], policy: StopPolicy, eos_ids: frozenset[int]) -> bool:
    """Add picks to the draft, up to an end of sequence; whether drafting stops behind them, which the draft then says."""
    end = next((index for index, pick in enumerate(picks) if pick.id in eos_ids), None)
    draft.picks += picks if end is None else picks[: end + 1]
    if end is None and picks[-1].confidence >= policy.threshold:
        return False
    draft.stop = "confidence" if end is None else "eos"
    return True


def _draft_at_once(
    stream: Stream, unread: Tensor, picker: Picker, policy: StopPolicy, lookahead: int, budget: int,
    eos_ids: frozenset[int], **how,
) -> tuple[Draft, Tensor] | None:
    """What draft_tokens makes, in one call of the stream, and the states (m, d) of the positions read; None where the
    stream or the sampling doesn't allow it. how: layers, vocabulary, read_last (see LeanStream.draft)."""
    whole, most = getattr(stream, "draft", None), min(lookahead, budget)
    if whole is None or not picker.sampling.greedy or most > _ROWS:
        return None
    made = whole(unread, most, policy.threshold, list(eos_ids), **how)
    if made is None:
        return None
    tokens, rows, states = made
    draft = Draft(stop=policy.reason if lookahead <= budget else "budget")
    _take(draft, picker.describe(tokens, rows), policy, eos_ids)
    return draft, states


class AssistantDrafter:
    """A smaller model with the same vocabulary. Only ids below ``shared_vocab`` are drafted: padded rows of the
    logits, which differ between models of one family, mean nothing. Should the target pick such a row all the same,
    the draft model reads its own last row in that place: its guesses may suffer, the output does not."""

    def __init__(
        self, stream: Stream, picker: Picker, eos_ids: frozenset[int], shared_vocab: int, vocab: int, context: int
    ):
        self._stream = stream
        self._last_id = vocab - 1
        self._picker = picker
        self._eos_ids = eos_ids
        self._shared_vocab = shared_vocab
        self._context = context

    def prefill(self, sequence: Sequence[int]) -> None:
        ids = [min(token, self._last_id) for token in sequence[:-1][: self._context]]
        self._stream.forward(ids_tensor(ids, self._stream.device), keep=0)

    def propose(self, sequence: Sequence[int], policy: StopPolicy, lookahead: int, budget: int) -> Draft:
        # A sequence that outgrows the draft model's own context window goes on without drafts.
        budget = min(budget, max(self._context - len(sequence) + 1, 0))
        unread = [min(token, self._last_id) for token in sequence[self._stream.length :]]
        feed = ids_tensor(unread, self._stream.device)
        at_once = _draft_at_once(
            self._stream, feed, self._picker, policy, lookahead, budget, self._eos_ids, vocabulary=self._shared_vocab
        )
        if at_once is not None:
            return at_once[0]
        return draft_tokens(self._step, feed, self._picker, policy, lookahead, budget, self._eos_ids)

    def _step(self, ids: Tensor) -> Tensor:
        return self._stream.forward(ids, keep=1)[0][: self._shared_vocab]

    def rewind(self, length: int) -> None:
        # Behind a full acceptance the drafter has not read its own last token: it is the shorter one.
        self._stream.rewind(min(length, self._stream.length))

    def close(self) -> None:
        self._stream.close()


class EarlyExitDrafter:
    """The target's own first ``exit_layer`` layers, through the shared norm and head.

    Weights and cache are the target's: the stream is shared with the RemainderVerifier, to which the exit
    states are handed over, so that verification starts at layer ``exit_layer``. The last drafted token runs
    through the early layers too: all layers then read the same positions, each of them once.
    """

    def __init__(self, stream: SplitStream, exit_layer: int, picker: Picker, eos_ids: frozenset[int]):
        self._stream = stream
        self._exit_layer = exit_layer
        self._picker = picker
        self._eos_ids = eos_ids

    def prefill(self, sequence: Sequence[int]) -> None:
        pass  # the verifier's prefill runs all layers of the shared stream

    def propose(self, sequence: Sequence[int], policy: StopPolicy, lookahead: int, budget: int) -> Draft:
        unread = ids_tensor(sequence[self._stream.length :], self._stream.device)
        at_once = _draft_at_once(
            self._stream, unread, self._picker, policy, lookahead, budget, self._eos_ids, layers=self._exit_layer,
            read_last=True,
        )
        if at_once is not None:
            draft, states = at_once
            draft.exit_states = states[None]
            return draft
        states: list[Tensor] = []

        def run_early(ids: Tensor) -> Tensor:
            states.append(self._stream.run(self._stream.embed(ids), 0, self._exit_layer))
            return states[-1]

        def step(ids: Tensor) -> Tensor:
            return self._stream.head(run_early(ids)[:, -1:])[0]

        draft = draft_tokens(step, unread, self._picker, policy, lookahead, budget, self._eos_ids)
        needed = len(unread) + len(draft.picks)
        if not draft.picks:
            run_early(unread)
        elif sum(state.shape[1] for state in states) < needed:
            run_early(ids_tensor([draft.picks[-1].id], self._stream.device))
        # There are more where tokens behind an end were dropped.
        draft.exit_states = (torch.cat(states, dim=1) if len(states) > 1 else states[0])[:, :needed]
        return draft

    def rewind(self, length: int) -> None:
        pass  # the verifier rewinds the shared stream

    def close(self) -> None:
        pass


class PromptLookupDrafter:
    """Copies what followed the last occurrence's twin: the latest n tokens are looked up in the sequence so far.

    n-gram sizes from ``ngram`` down to 1; the first occurrence from the left that has a continuation wins, as in
    transformers' prompt lookup. The copy is cut before an end-of-sequence token.
    """

    def __init__(self, ngram: int, eos_ids: frozenset[int]):
        self._ngram = ngram
        self._eos_ids = eos_ids
        self._places: list[dict[tuple[int, ...], int]] = []
        self._indexed = 0

    def prefill(self, sequence: Sequence[int]) -> None:
        self._places = [{} for _ in range(self._ngram)]
        self._indexed = 0

    def propose(self, sequence: Sequence[int], policy: StopPolicy, lookahead: int, budget: int) -> Draft:
        draft = Draft(stop="no-match")
        most = min(lookahead, budget)
        if most < 1:
            return Draft(stop=policy.reason if lookahead <= budget else "budget")
        start = self._continuation(sequence)
        if start is None:
            return draft
        for token in sequence[start : start + most]:
            if token in self._eos_ids:
                break
            draft.picks.append(Pick(token, 1.0))
        if len(draft.picks) == most:
            draft.stop = policy.reason if lookahead <= budget else "budget"
        return draft

    def _continuation(self, sequence: Sequence[int]) -> int | None:
        self._index(sequence)
        for size in range(min(self._ngram, len(sequence) - 1), 0, -1):
            start = self._places[size - 1].get(tuple(sequence[-size:]))
            if start is not None and start < len(sequence):
                return start
        return None

    def _index(self, sequence: Sequence[int]) -> None:
        # First occurrences only, so an entry never changes; accepted tokens are never taken back.
        for end in range(self._indexed + 1, len(sequence)):
            for size in range(1, self._ngram + 1):
                if end >= size:
                    self._places[size - 1].setdefault(tuple(sequence[end - size : end]), end)
        self._indexed = max(len(sequence) - 1, 0)

    def rewind(self, length: int) -> None: ...

    def close(self) -> None:
        self._places = []
