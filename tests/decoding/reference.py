"""What the core is compared with: transformers' own decoding of the same models."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import torch
import transformers.generation.candidate_generator as candidates

from specviz.decoding import Method, MethodConfig, build, decode
from specviz.models.loading import LoadedModel
from specviz.trace import Trace


def encode(loaded: LoadedModel, text: str) -> list[int]:
    return loaded.tokenizer(text).input_ids


def run(ids: Sequence[int], target: LoadedModel, draft: LoadedModel | None = None, limit: int = 32, *,
        sampling=None, **config) -> Trace:
    method = build(MethodConfig(**config), target, draft)
    return run_method(ids, method, limit, **({"sampling": sampling} if sampling else {}))


def run_method(ids: Sequence[int], method: Method, limit: int = 32, **options) -> Trace:
    return Trace.collect(decode(ids, method, limit, **options))


def generate(loaded: LoadedModel, ids: Sequence[int], limit: int) -> list[int]:
    """New tokens of ``model.generate(do_sample=False)``."""
    with torch.inference_mode():
        out = loaded.model.generate(torch.tensor([list(ids)]), do_sample=False, max_new_tokens=limit)[0].tolist()
    return out[1:] if loaded.is_encoder_decoder else out[len(ids):]


def assisted(target: LoadedModel, draft: LoadedModel, ids: Sequence[int], limit: int, *, tokens: int,
             schedule: str, threshold: float) -> tuple[list[int], list[tuple[int, int]]]:
    """New tokens of transformers' assisted generation, and (drafted, accepted) of each of its iterations.

    transformers leaves an accepted end-of-sequence token out of its count of matches; here it counts.
    """
    config = draft.model.generation_config
    before = {name: getattr(config, name) for name in
              ("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold")}
    config.num_assistant_tokens = tokens
    config.num_assistant_tokens_schedule = schedule
    config.assistant_confidence_threshold = threshold
    seen: list[tuple[int, int]] = []
    original = candidates.AssistedCandidateGenerator.update_candidate_strategy

    def spy(self, input_ids, scores, num_matches):
        drafted = scores.shape[1] - 1
        matches = int(num_matches)
        if matches == drafted - 1 and int(input_ids[0, -1]) in target.eos_ids:
            # The run ended at its last drafted token or at a correction; only the target's choice at that place,
            # which is the token that was kept, tells; a drafted end that was refused cannot be the sequence's end.
            matches = drafted if last_draft[0] == int(input_ids[0, -1]) else matches
        seen.append((drafted, matches))
        return original(self, input_ids, scores, num_matches)

    last_draft = [None]
    propose = candidates.AssistedCandidateGenerator.get_candidates

    def watch(self, input_ids, **kwargs):
        if target.is_encoder_decoder:
            # transformers 5.24 feeds an encoder-decoder draft model the whole sequence again, on top of the cache of
            # the round before, so that from the third round on it drafts from a doubled text. Without that cache it
            # drafts from the right one.
            self.assistant_kwargs.pop("cache", None)
        result = propose(self, input_ids, **kwargs)
        last_draft[0] = int(result[0][0, -1])
        return result

    try:
        with mock.patch.object(candidates.AssistedCandidateGenerator, "update_candidate_strategy", spy), \
                mock.patch.object(candidates.AssistedCandidateGenerator, "get_candidates", watch), \
                mock.patch.object(candidates, "is_sklearn_available", lambda: False), torch.inference_mode():
            out = target.model.generate(
                torch.tensor([list(ids)]), assistant_model=draft.model, do_sample=False, max_new_tokens=limit
            )[0].tolist()
    finally:
        for name, value in before.items():
            setattr(config, name, value)
    return (out[1:] if target.is_encoder_decoder else out[len(ids):]), seen


def counts(trace: Trace) -> list[tuple[int, int]]:
    return [(iteration.drafted, iteration.accepted) for iteration in trace.iterations]
