"""From a log to numbers. The definitions are those of the whole project; every count that a rate is made of is given."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from specviz.trace import Trace

if TYPE_CHECKING:
    import pandas

DRAFTLESS = ("autoregressive", "prompt-lookup")  # methods whose drafts need no forward


@dataclass(frozen=True)
class Metrics:
    """Numbers of one run; times in seconds. A ratio whose denominator is 0 is None."""

    tokens: int  # added to the prompt
    iterations: int
    drafted: int
    accepted: int
    corrections: int
    bonuses: int
    target_forwards: int  # one an iteration, prefill apart
    draft_forwards: int  # one a drafted token; 0 where drafts come without a model
    wasted: int  # drafted and not accepted
    acceptance_rate: float | None  # accepted ÷ drafted
    mean_acceptance_length: float | None  # (accepted + corrections + bonuses) ÷ iterations
    drafted_at: tuple[int, ...]  # iterations that drafted a token at place 0, 1, ... of the draft
    accepted_at: tuple[int, ...]  # how many of these tokens were accepted
    accepted_lengths: tuple[int, ...]  # iterations that accepted 0, 1, ... tokens
    stops: dict[str, int]  # iterations by the reason that drafting stopped for
    draft_seconds: float
    verify_seconds: float
    other_seconds: float | None  # the loop and the log; None for an unfinished run
    seconds: float  # all of these, without prefill
    prefill_seconds: float | None
    tokens_per_second: float | None

    @property
    def shares(self) -> dict[str, float]:
        """Share of the time (0..1) that went into drafting, verifying, and everything else."""
        total = self.seconds or 1.0
        return {
            "drafting": self.draft_seconds / total,
            "verifying": self.verify_seconds / total,
            "other": (self.other_seconds or 0.0) / total,
        }

    @property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """For place 0, 1, ... of the draft: accepted ÷ drafted there."""
        return tuple(a / d for a, d in zip(self.accepted_at, self.drafted_at, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, rates and shares included."""
        return asdict(self) | {"shares": self.shares, "acceptance_by_position": list(self.acceptance_by_position)}


def measure(trace: Trace) -> Metrics:
    """The numbers of a run; an unfinished run gives those of the iterations that it has."""
    iterations = trace.iterations
    drafted = [iteration.drafted for iteration in iterations]
    accepted = [iteration.accepted for iteration in iterations]
    kinds = [iteration.ending.kind for iteration in iterations if iteration.ending]
    tokens = sum(len(iteration.ids) for iteration in iterations)
    draft_seconds = sum(iteration.draft_seconds for iteration in iterations)
    verify_seconds = sum(iteration.verify_seconds for iteration in iterations)
    known = draft_seconds + verify_seconds
    seconds = max(trace.footer.seconds, known) if trace.footer else known
    stops: dict[str, int] = {}
    for iteration in iterations:
        stops[iteration.stop] = stops.get(iteration.stop, 0) + 1
    return Metrics(
        tokens=tokens,
        iterations=len(iterations),
        drafted=sum(drafted),
        accepted=sum(accepted),
        corrections=kinds.count("correction"),
        bonuses=kinds.count("bonus"),
        target_forwards=len(iterations),
        draft_forwards=0 if trace.header.method.get("name") in DRAFTLESS else sum(drafted),
        wasted=sum(drafted) - sum(accepted),
        acceptance_rate=_ratio(sum(accepted), sum(drafted)),
        mean_acceptance_length=_ratio(tokens, len(iterations)),
        drafted_at=tuple(sum(d > place for d in drafted) for place in range(max(drafted, default=0))),
        accepted_at=tuple(sum(a > place for a in accepted) for place in range(max(drafted, default=0))),
        accepted_lengths=tuple(accepted.count(k) for k in range(max(accepted, default=-1) + 1)),
        stops=stops,
        draft_seconds=draft_seconds,
        verify_seconds=verify_seconds,
        other_seconds=seconds - known if trace.footer else None,
        seconds=seconds,
        prefill_seconds=trace.footer.prefill_seconds if trace.footer else None,
        tokens_per_second=_ratio(tokens, seconds),
    )


def speedup(trace: Trace, baseline: Trace) -> float | None:
    """How many times as many tokens a second as the baseline, prefill apart in both; None where a time is missing."""
    ours, theirs = measure(trace).tokens_per_second, measure(baseline).tokens_per_second
    return ours / theirs if ours and theirs else None


def to_frame(trace: Trace) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Two tables: one row an iteration, and one row a token, refused ones included.

    A token's ``position`` is the place in the sequence (prompt included) that it took or was drafted for; ``fate`` is
    accepted, refused, correction or bonus; ``place`` its index in the draft (empty for the target's own).
    """
    import pandas

    rows, tokens = [], []
    for iteration in trace.iterations:
        ending = iteration.ending
        rows.append({
            "iteration": iteration.index, "start": iteration.start, "drafted": iteration.drafted,
            "accepted": iteration.accepted, "stop": iteration.stop, "ending": ending.kind if ending else None,
            "tokens": len(iteration.ids), "text": iteration.text,
            "lookahead": iteration.policy.get("lookahead"), "threshold": iteration.policy.get("threshold"),
            "draft_seconds": iteration.draft_seconds, "verify_seconds": iteration.verify_seconds,
        })  # fmt: skip
        for place, token in enumerate(iteration.draft):
            tokens.append({
                "position": iteration.start + place, "iteration": iteration.index, "place": place,
                "fate": "accepted" if place < iteration.accepted else "refused", "id": token.id, "text": token.text,
                "confidence": token.confidence, "target_probability": token.target_probability,
                "entropy": token.entropy,
            })  # fmt: skip
        if ending:
            tokens.append({
                "position": iteration.start + iteration.accepted, "iteration": iteration.index, "place": None,
                "fate": ending.kind, "id": ending.id, "text": ending.text, "confidence": None,
                "target_probability": ending.probability, "entropy": None,
            })  # fmt: skip
    return pandas.DataFrame(rows, columns=ITERATION_COLUMNS), pandas.DataFrame(tokens, columns=TOKEN_COLUMNS).astype(
        {"place": "Int64"}
    )


ITERATION_COLUMNS = [
    "iteration", "start", "drafted", "accepted", "stop", "ending", "tokens", "text", "lookahead", "threshold",
    "draft_seconds", "verify_seconds",
]  # fmt: skip
TOKEN_COLUMNS = [
    "position", "iteration", "place", "fate", "id", "text", "confidence", "target_probability", "entropy",
]  # fmt: skip


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
