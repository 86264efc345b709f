"""The target's part: one forward over the drafted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from specviz.decoding.drafters import Draft
from specviz.models.streams import SplitStream, Stream, ids_tensor


class Verifier(Protocol):
    def prefill(self, sequence: Sequence[int]) -> None:
        """Read all of the sequence but its last token."""

    def verify(self, sequence: Sequence[int], draft: Draft) -> Tensor:
        """Logits (k+1, V) at the sequence's last token and at each of the k drafted tokens, in one forward."""

    def rewind(self, length: int) -> None:
        """Forget the positions from ``length`` on."""

    def close(self) -> None: ...


class FullVerifier:
    """All layers over the last token and the draft."""

    def __init__(self, stream: Stream):
        self.stream = stream

    def prefill(self, sequence: Sequence[int]) -> None:
        self.stream.forward(ids_tensor(sequence[:-1], self.stream.device), keep=0)

    def verify(self, sequence: Sequence[int], draft: Draft) -> Tensor:
        unread = [*sequence[self.stream.length :], *draft.ids]
        return self.stream.forward(ids_tensor(unread, self.stream.device), keep=len(draft.picks) + 1)

    def rewind(self, length: int) -> None:
        self.stream.rewind(length)

    def close(self) -> None:
        self.stream.close()


class RemainderVerifier(FullVerifier):
    """Only layers ``exit_layer``..L-1, starting from the drafter's exit states (LayerSkip, arXiv 2404.16710)."""

    def __init__(self, stream: SplitStream, exit_layer: int):
        super().__init__(stream)
        self._exit_layer = exit_layer

    def verify(self, sequence: Sequence[int], draft: Draft) -> Tensor:
        hidden = self.stream.run(draft.exit_states, self._exit_layer, self.stream.layers)
        return self.stream.head(hidden[:, -len(draft.picks) - 1 :])
