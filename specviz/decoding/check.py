"""Is the output what the target alone would give? And was it faster?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specviz.decoding.decode import decode
from specviz.decoding.methods import MethodConfig, build, starting_sequence
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel
from specviz.models.streams import ids_tensor, open_stream
from specviz.trace import Trace

# Rounding differs between a forward of one token and a forward of several; two logits closer than this
# may change places without anything being wrong.
NEAR_TIE = {"float32": 1e-3, "bfloat16": 0.25, "float16": 0.05}


@dataclass(frozen=True)
class Check:
    """Comparison of a run with plain decoding of the same target.

    identical: same tokens. position: of the first difference in the output (None where identical), there:
    ``ours`` and ``plain`` as (id, text), gap: the distance of their two logits in the target's own forward,
    near_tie: whether that distance is within rounding. speedup: plain seconds per token ÷ the run's.
    """

    identical: bool
    tokens: int
    plain_tokens: int
    position: int | None
    ours: tuple[int, str] | None
    plain: tuple[int, str] | None
    gap: float | None
    near_tie: bool
    plain_trace: Trace
    speedup: float | None

    def verdict(self) -> str:
        """One sentence for a person."""
        if self.identical:
            return f"identical: {self.tokens} of {self.plain_tokens} tokens"
        ours = repr(self.ours[1]) if self.ours else "the end"
        plain = repr(self.plain[1]) if self.plain else "the end"
        gap = "" if self.gap is None else f", logit gap {self.gap:.2g}"
        why = " (a near tie: rounding decides)" if self.near_tie else ""
        return f"differs at token {self.position}: {ours} where the target alone gives {plain}{gap}{why}"

    def as_dict(self) -> dict[str, Any]:
        keys = ("identical", "tokens", "plain_tokens", "position", "ours", "plain", "gap", "near_tie", "speedup")
        return {key: getattr(self, key) for key in keys}


def check_run(trace: Trace, target: LoadedModel, plain: Trace | None = None) -> Check:
    """Compare a finished greedy run with the target alone. plain: that run, where it was made already."""
    if trace.header.sampling.get("temperature"):
        raise UsageError("a sampled run has no single right output to compare with: set temperature to 0")
    if plain is None:
        method = build(MethodConfig("autoregressive"), target)
        plain = Trace.collect(decode(trace.header.prompt_ids, method, trace.header.limit))
    ours, alone = trace.output_ids, plain.output_ids
    speedup = None
    if trace.footer and plain.footer and trace.footer.seconds > 0 and trace.footer.tokens:
        speedup = (plain.footer.seconds / max(plain.footer.tokens, 1)) / (
            trace.footer.seconds / trace.footer.tokens
        )
    position = next((i for i, (a, b) in enumerate(zip(ours, alone, strict=False)) if a != b), None)
    if position is None and len(ours) != len(alone):
        position = min(len(ours), len(alone))
    if position is None:
        return Check(True, len(ours), len(alone), None, None, None, None, False, plain, speedup)
    name = target.tokenizer.decode
    first, second = (ids[position] if position < len(ids) else None for ids in (ours, alone))
    gap = None
    if first is not None and second is not None:
        gap = _gap(target, trace.header.prompt_ids, alone[:position], first, second)
    return Check(
        False, len(ours), len(alone), position,
        None if first is None else (first, name([first])), None if second is None else (second, name([second])),
        gap, gap is not None and gap < NEAR_TIE.get(str(target.dtype).removeprefix("torch."), 0.0), plain, speedup,
    )


@torch.inference_mode()
def _gap(target: LoadedModel, prompt_ids: Sequence[int], before: Sequence[int], first: int, second: int) -> float:
    """Distance of two tokens' logits behind a text, in the target's own forward."""
    start, encoder_ids = starting_sequence(target, prompt_ids)
    stream = open_stream(target, encoder_ids=encoder_ids, length=len(start) + len(before))
    try:
        logits = stream.forward(ids_tensor([*start, *before], stream.device), keep=1)[0].float()
        return abs(float(logits[first] - logits[second]))
    finally:
        stream.close()
