"""The one loop: draft, verify, keep what agrees, and say what happened."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence

import torch
import transformers
from torch import Tensor

import specviz
from specviz.decoding.acceptance import accepted_prefix, sampled_prefix
from specviz.decoding.drafters import Draft
from specviz.decoding.methods import Method, Session
from specviz.decoding.recording import Recorder
from specviz.decoding.sampling import Detail, Picker, Sampling
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel
from specviz.trace import Header, Record

GREEDY = Sampling()
DETAIL = Detail()


@torch.inference_mode()
def decode(
    prompt_ids: Sequence[int],
    method: Method,
    limit: int = 128,
    *,
    sampling: Sampling = GREEDY,
    detail: Detail = DETAIL,
    prompt: str | None = None,
    command: str | None = None,
) -> Iterator[Record]:
    """Decode up to ``limit`` new tokens behind the prompt; yields a Header, Iterations and a Footer as they come.

    The output is what the target alone would give: the same tokens when greedy, the same distribution when
    sampling. A caller that stops iterating (``close``) leaves no cache behind.
    prompt: the text behind prompt_ids, for the log; decoded from them where it is not given.
    """
    limit, at_limit = _room(method.target, prompt_ids, limit)
    picker = Picker(sampling, detail, method.target.device)
    session = method.open(prompt_ids, limit, picker)
    try:
        yield _header(method, session, prompt_ids, limit, sampling, prompt, command)
        recorder = Recorder(method, session, prompt_ids, detail)
        sequence, end = session.sequence, len(session.sequence) + limit

        began = time.perf_counter()
        session.prefill()
        prefill_seconds, seconds = time.perf_counter() - began, 0.0

        while True:
            began = time.perf_counter()
            budget = end - len(sequence) - 1  # the target's own token needs a place too
            lookahead = session.policy.lookahead(recorder.tokens)
            draft = session.drafter.propose(sequence, session.policy, lookahead, budget)
            drafted = time.perf_counter()
            logits = session.verifier.verify(sequence, draft)
            accepted, token, probabilities = _judge(draft, logits, picker, method.target.eos_ids)
            verified = time.perf_counter()

            record = recorder.iteration(
                draft, accepted, token, logits, probabilities, (drafted - began, verified - drafted)
            )
            sequence.extend(record.ids)
            session.rewind(len(sequence) - 1)
            session.policy.learn(len(draft.picks), accepted)
            reason = _ended(sequence, end, record.ids, method.target.eos_ids, at_limit)
            seconds += time.perf_counter() - began  # without the time that the reader takes
            yield record
            if reason:
                break
        yield recorder.footer(reason, seconds, prefill_seconds)
    finally:
        session.close()


def _judge(
    draft: Draft, logits: Tensor, picker: Picker, eos_ids: frozenset[int]
) -> tuple[int, int | None, Tensor | None]:
    """How many drafts stand, the target's own token behind them (None behind an accepted end of sequence),
    and the target's distributions where they were needed."""
    ids = draft.ids
    probabilities = None
    if picker.sampling.greedy:
        choices = logits.argmax(dim=-1).tolist()
        accepted = accepted_prefix(ids, choices)
        token: int | None = choices[accepted]
    else:
        probabilities = picker.probabilities(logits)
        drafted = draft.probabilities(logits.shape[-1])
        accepted, token = sampled_prefix(ids, drafted, probabilities, picker.generator)
    if accepted and ids[accepted - 1] in eos_ids:
        token = None
    return accepted, token, probabilities


def _ended(
    sequence: Sequence[int], end: int, new: Sequence[int], eos_ids: frozenset[int], at_limit: str
) -> str | None:
    if new[-1] in eos_ids:
        return "eos"
    return at_limit if len(sequence) >= end else None


def _room(target: LoadedModel, prompt_ids: Sequence[int], limit: int) -> tuple[int, str]:
    """How many tokens can be added, and what the run's end is called when they are."""
    if not prompt_ids:
        raise UsageError("the prompt is empty: type at least one character")
    if limit < 1:
        raise UsageError(f"limit={limit}: at least one new token has to be asked for")
    used = 1 if target.is_encoder_decoder else len(prompt_ids)
    room = target.context - used
    if room < 1 or len(prompt_ids) >= target.context:
        raise UsageError(
            f"the prompt has {len(prompt_ids)} tokens, {target.name} takes {target.context} in all: shorten it"
        )
    return (limit, "limit") if limit <= room else (room, "context")


def _header(
    method: Method, session: Session, prompt_ids: Sequence[int], limit: int, sampling: Sampling,
    prompt: str | None, command: str | None,
) -> Header:
    tokenizer = method.target.tokenizer
    return Header(
        method=method.config.as_dict(),
        target=_describe(method.target, session.stream_kinds.get("target")),
        draft=_describe(method.draft, session.stream_kinds.get("draft")) if method.draft else None,
        prompt=prompt if prompt is not None else tokenizer.decode(prompt_ids, skip_special_tokens=True),
        prompt_ids=tuple(int(token) for token in prompt_ids),
        limit=limit,
        sampling={"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p},
        seed=None if sampling.greedy else sampling.seed,
        prompt_pieces=Recorder.prompt_pieces(tokenizer, prompt_ids),
        versions={
            "specviz": specviz.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        command=command,
    )


def _describe(loaded: LoadedModel, stream: str | None) -> dict:
    config = loaded.model.config
    layers = getattr(config, "num_hidden_layers", None)
    return {
        "name": loaded.name,
        "revision": loaded.revision,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "device": str(loaded.device),
        "layers": layers,
        "family": config.model_type,
        "vocabulary": loaded.vocab_size,
        "stream": stream,
    }
