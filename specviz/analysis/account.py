"""Where a run's time went, counted in plain tokens: why it was faster than the target alone, or why not.

The cost model's sum (``cost.py``) over what was measured in the run itself. An iteration drafts some tokens, each for a share
of what a plain token costs, checks them all in one forward, and adds the accepted ones and one more. It pays when it adds
more tokens than it costs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from specviz.analysis.metrics import measure
from specviz.trace import Trace


@dataclass(frozen=True)
class Account:
    """Of the mean iteration of a run. Costs are in seconds of a plain token: 1.2 is a fifth more than the target alone
    needs for a token. drafting + verifying + other = cost; added ÷ cost = speedup."""

    drafted: float  # tokens
    accepted: float  # of them
    added: float  # tokens
    drafting: float
    verifying: float
    other: float  # the loop and the log

    @property
    def step(self) -> float | None:
        """Cost of one drafted token; None where none was drafted."""
        return self.drafting / self.drafted if self.drafted else None

    @property
    def cost(self) -> float:
        """Cost of the mean iteration, and so the tokens that it has to add to break even."""
        return self.drafting + self.verifying + self.other

    @property
    def speedup(self) -> float:
        return self.added / self.cost

    def sentence(self) -> str:
        """For a person."""
        return (
            f"an iteration added {self.added:.2f} tokens ({self.accepted:.2f} of {self.drafted:.2f} drafted) and cost {self.cost:.2f} "
            f"plain tokens ({self.drafting:.2f} drafting, {self.verifying:.2f} checking, {self.other:.2f} the rest)"
        )

    def as_dict(self) -> dict[str, float | None]:
        """Plain JSON values, what follows from the others included."""
        return asdict(self) | {"step": self.step, "cost": self.cost, "speedup": self.speedup}


def account(trace: Trace, plain: Trace) -> Account | None:
    """The account of a finished run. plain: the target alone, finished, on the same machine, best with the same prompt.

    None where a run isn't finished, or took no time that could be measured.
    """
    ours, alone = measure(trace), measure(plain)
    if trace.footer is None or plain.footer is None or not (alone.seconds > 0 and alone.tokens and ours.seconds > 0):
        return None
    unit = alone.seconds / alone.tokens * ours.iterations
    return Account(
        drafted=ours.drafted / ours.iterations,
        accepted=ours.accepted / ours.iterations,
        added=ours.tokens / ours.iterations,
        drafting=ours.draft_seconds / unit,
        verifying=ours.verify_seconds / unit,
        other=(ours.other_seconds or 0.0) / unit,
    )
