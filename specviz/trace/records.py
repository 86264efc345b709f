"""What a log is made of: a header, iterations, a footer, and the trace that holds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1

STOP_REASONS = ("length", "confidence", "eos", "budget", "oracle", "no-match")
ENDS = ("eos", "limit", "context", "stopped")


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that was possible at a position, and its probability (0..1)."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class DraftToken:
    """One drafted token.

    confidence: probability (0..1) that the drafter gave to this token, after the same logits processing
    as the pick; 1.0 for a drafter without probabilities (prompt lookup). entropy: of the drafter's
    distribution, in nats. alternatives: the drafter's most probable tokens, most probable first.
    target_probability: what the target gave this token; None where the target never looked, that is
    behind the end of the sequence.
    """

    id: int
    text: str
    confidence: float
    entropy: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    target_probability: float | None = None


@dataclass(frozen=True, slots=True)
class TargetToken:
    """The target's own token that ended an iteration: a correction or a bonus."""

    id: int
    text: str
    kind: str  # "correction" in place of a refused token, "bonus" after a full acceptance
    probability: float | None = None
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Header:
    """What was asked for and with what. ``method`` is the full configuration as plain JSON values."""

    method: dict[str, Any]
    target: dict[str, Any]  # name, revision, dtype, device, layers
    draft: dict[str, Any] | None
    prompt: str
    prompt_ids: tuple[int, ...]
    limit: int  # most new tokens
    sampling: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    prompt_pieces: tuple[str, ...] = ()  # one per prompt id; they join to the tokenizer's own decoding
    versions: dict[str, str] = field(default_factory=dict)
    command: str | None = None  # the command line that made this run
    schema: int = SCHEMA
    kind: str = "header"


@dataclass(frozen=True, slots=True)
class Iteration:
    """One draft phase and one verification.

    start: position in the whole sequence (prompt included) of the first token that this iteration adds;
    for encoder-decoder models in the decoder's sequence. accepted: how many drafted tokens the target
    confirmed. ending: the target's own token, None where an accepted end-of-sequence token ended the run.
    policy: the state of the stop policy while drafting (lookahead, threshold). Times in seconds.
    """

    index: int
    start: int
    draft: tuple[DraftToken, ...]
    stop: str
    accepted: int
    ending: TargetToken | None
    policy: dict[str, Any] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    kind: str = "iteration"

    @property
    def drafted(self) -> int:
        return len(self.draft)

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids that this iteration adds to the output."""
        kept = tuple(token.id for token in self.draft[: self.accepted])
        return kept if self.ending is None else (*kept, self.ending.id)

    @property
    def text(self) -> str:
        """Text that this iteration adds to the output."""
        kept = "".join(token.text for token in self.draft[: self.accepted])
        return kept if self.ending is None else kept + self.ending.text


@dataclass(frozen=True, slots=True)
class Footer:
    """Why the run ended, and its totals. ``setup`` holds costs apart from the run (the oracle's first pass)."""

    end: str  # one of ENDS
    tokens: int
    iterations: int
    drafted: int
    accepted: int
    seconds: float  # everything after prefill: drafting, verifying, and the loop itself
    prefill_seconds: float
    tail: str = ""  # text of an unfinished character at the end, so that all texts join to the decoding
    setup: dict[str, Any] = field(default_factory=dict)
    kind: str = "footer"


Record = Header | Iteration | Footer


@dataclass
class Trace:
    """A run as it was logged. ``problems`` says in words what a file lacked; an unfinished run has no footer."""

    header: Header
    iterations: list[Iteration] = field(default_factory=list)
    footer: Footer | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.footer is not None

    @property
    def output_ids(self) -> tuple[int, ...]:
        return tuple(token for iteration in self.iterations for token in iteration.ids)

    @property
    def text(self) -> str:
        return "".join(iteration.text for iteration in self.iterations) + (self.footer.tail if self.footer else "")

    @classmethod
    def collect(cls, records: Iterable[Record]) -> Trace:
        """Build a trace from the records of a run."""
        trace: Trace | None = None
        for record in records:
            if isinstance(record, Header):
                trace = cls(record)
            elif trace is None:
                raise TraceError("a trace starts with its header")
            elif isinstance(record, Footer):
                trace.footer = record
            else:
                trace.iterations.append(record)
        if trace is None:
            raise TraceError("no records: a trace has at least a header")
        return trace


class TraceError(ValueError):
    """A file that is not a trace, or a line that cannot be read; the message names the line."""
