"""When drafting stops. A policy is asked after each drafted token and told how each iteration ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class StopPolicy(Protocol):
    reason: str  # what the log calls reaching the lookahead: "length" or "oracle"
    threshold: float  # drafting stops behind a token whose confidence is below it; 0: none is looked at

    def lookahead(self, position: int) -> int:
        """Most tokens to draft in an iteration whose first token is the output's ``position``-th (from 0)."""

    def learn(self, drafted: int, accepted: int) -> None:
        """How the iteration ended."""

    def state(self) -> dict[str, Any]:
        """What the log says of the policy in this iteration."""


class Constant:
    """Always the same lookahead; with a threshold also the confidence criterion, which makes it *dynamic*.

    The token whose confidence is below the threshold is still drafted and verified, drafting stops
    after it: as transformers does since 4.45.
    """

    reason = "length"

    def __init__(self, lookahead: int, threshold: float = 0.0):
        self._lookahead = lookahead
        self.threshold = threshold

    def lookahead(self, position: int) -> int:
        return self._lookahead

    def learn(self, drafted: int, accepted: int) -> None:
        pass

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"lookahead": self._lookahead}
        return state | {"threshold": self.threshold} if self.threshold else state


class Heuristic(Constant):
    """The lookahead grows by 2 after a full acceptance and shrinks by 1 otherwise, never below 1."""

    def learn(self, drafted: int, accepted: int) -> None:
        self._lookahead = self._lookahead + 2 if accepted == drafted else max(1, self._lookahead - 1)


class Oracle:
    """Drafts exactly until the first mismatch. lengths[t]: how many drafts in a row stand at output position t."""

    reason = "oracle"
    threshold = 0.0

    def __init__(self, lengths: Sequence[int]):
        self._lengths = lengths
        self._now = 0

    def lookahead(self, position: int) -> int:
        self._now = int(self._lengths[position]) if position < len(self._lengths) else 0
        return self._now

    def learn(self, drafted: int, accepted: int) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {"lookahead": self._now}


def run_lengths(match: Sequence[bool]) -> list[int]:
    """Length of the run of matches that starts at each position: (N,) -> N whole numbers."""
    lengths = [0] * len(match)
    run = 0
    for index in range(len(match) - 1, -1, -1):
        run = run + 1 if match[index] else 0
        lengths[index] = run
    return lengths
