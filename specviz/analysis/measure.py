"""Measure a probe: read one finished greedy output once with the drafter, and continue it behind every wrong token.

Memory and time. Let L be the layers, V the vocabulary, T the sequence (prompt and output), N the output, R the rows
(exit layers), E a row's exit layer, J the tokens behind a wrong one, W the wrong positions of all rows (at most R N).

The output is read in chunks of C positions. A chunk goes through the layers one by one; behind each layer the head makes
logits (C, V), which are reduced to id, confidence and margin at once. Hidden states of one chunk and one layer are all
that is kept. C is chosen so that neither logits (C, V) nor attention scores (heads, C, T) exceed ``readers.MOST_ELEMENTS`` = 2^23
numbers (32 MiB as float32): C = min(256, 2^23 / V, 2^23 / (heads T)), at least 1. Continuations run at most C, and at
most 64, at a time.

For a model of Llama-8B's size (32 layers, hidden 4,096, 32 heads, 8 of them for keys of 128, V = 128,256) with N = 512
behind a prompt of 512: C = 65. Logits of a chunk are 65 x 128,256 = 8.3 million numbers, 33 MB in float32, and there are
two or three such tensors at a time while they are reduced: 0.1 GB. All logits at once would be 31 x 512 x 128,256 = 2.0
billion numbers, 8 GB. The cache takes 2 x 8 x 128 x 32 x 2 bytes = 131 kB a position in bfloat16: 134 MB for the 1,024
positions, 0.4 GB more while 64 continuations of up to 47 tokens hang on it (J for lookaheads up to 20, see ``_reach``).
The probe is 31 x 512 x 16 bytes = 0.25 MB and W x J x 12 bytes: 9 MB before compression if every position of every row
were wrong. So: the model's own 16 GB and less than 1 GB beside it.
Work: reading takes 1,024 x 14 GFLOP for the layers and 31 x 512 x 1.05 GFLOP for the heads: 14 + 17 = 31 TFLOP. The
continuations take W J (0.44 E + 1.05) GFLOP: with half of all positions wrong, J = 30 and E = 16 on average, that is
7,900 x 30 x 8.0 = 1,900 TFLOP, sixty times as much. At 300 TFLOP/s (one large GPU, bfloat16) that is 0.1 and 6 s, at
80 GFLOP/s (two CPU cores) 6 minutes and 7 hours. Hence on a CPU: fewer exit layers, or a smaller ``max_lookahead``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from specviz.analysis.branches import Branches
from specviz.analysis.probe import Probe
from specviz.analysis.readers import DraftReader, ExitReader, Reader
from specviz.decoding import MethodConfig, build, decode
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel, Progress
from specviz.trace import Trace


def measure_probe(
    target: LoadedModel,
    prompt_ids: Sequence[int],
    draft: LoadedModel | None = None,
    *,
    limit: int = 128,
    max_lookahead: int = 20,
    exit_layers: Sequence[int] | None = None,
    trace: Trace | None = None,
    prompt: str | None = None,
    progress: Progress | None = None,
) -> Probe:
    """Probe a draft model, or without one the target's own exit layers (default: all, 1..L-1).

    max_lookahead: longest lookahead that policies may ask for. trace: a finished greedy run of the target on this
    prompt, if there is one; without it the target decodes up to `limit` tokens first. prompt: the prompt's text.
    UsageError where the models do not fit together, the layers do not exist, or the trace is not such a run.
    """
    began = time.perf_counter()
    if trace is None:
        method = build(MethodConfig("autoregressive"), target)
        trace = Trace.collect(decode(prompt_ids, method, limit, prompt=prompt))
    _check_trace(trace, prompt_ids)
    decoded = time.perf_counter()
    if draft is None:
        reader: Reader = ExitReader(target, prompt_ids, exit_layers)
    else:
        reader = DraftReader(target, draft, prompt_ids, trace.header.limit)
    try:
        fields = _measure(reader, trace, max_lookahead, target.eos_ids, progress)
    finally:
        reader.close()
    used = np.unique(np.concatenate([fields["draft_ids"].ravel(), fields["wrong_ids"].ravel()]))
    return Probe(
        kind="assistant" if draft else "early-exit",
        target=target.name,
        draft=draft.name if draft else None,
        prompt=trace.header.prompt,
        prompt_ids=tuple(trace.header.prompt_ids),
        output_ids=trace.output_ids,
        pieces=_pieces(trace),
        tail=trace.footer.tail,
        eos_ids=tuple(sorted(target.eos_ids)),
        limit=trace.header.limit,
        end=trace.footer.end,
        offset=reader.offset,
        layers=target.model.config.num_hidden_layers,
        rows=reader.rows,
        max_lookahead=max_lookahead,
        draft_context=reader.context,
        texts={int(token): target.tokenizer.decode([int(token)]) for token in used if token >= 0},
        info={
            "dtype": str(target.dtype).removeprefix("torch."),
            "device": str(target.device),
            "continuations": reader.way,
            "decode_seconds": decoded - began,
            "probe_seconds": time.perf_counter() - decoded,
        },
        **fields,
    )


@torch.inference_mode()
def _measure(
    reader: Reader, trace: Trace, max_lookahead: int, eos_ids: frozenset[int], progress: Progress | None
) -> dict[str, np.ndarray]:
    output = np.asarray(trace.output_ids, np.int32)
    rows, n = len(reader.rows), len(output)
    ids = np.full((rows, n), -1, np.int32)
    confidence, margin = np.zeros((rows, n), np.float32), np.zeros((rows, n), np.float32)
    target_probability, target_margin = np.zeros(n, np.float32), np.zeros(n, np.float32)
    for place, row, judged in reader.read(trace.output_ids):
        parts = [part.cpu().numpy() for part in judged]
        if row is None:
            target_probability[place], target_margin[place] = parts
        else:
            ids[row, place], confidence[row, place], margin[row, place] = parts
        if progress:
            progress("reading the output", place.stop, n, "tokens")

    wrong = (ids != output) & (ids >= 0)
    index = np.full((rows, n), -1, np.int32)
    index[wrong] = np.arange(wrong.sum())
    reach = _reach(n, max_lookahead, trace.header.limit, reader.offset, reader.context)
    found = []
    for row in range(rows):
        at = np.flatnonzero(wrong[row])
        branches = Branches(reader.offset + at, ids[row, at], reach[at], eos_ids)
        reader.extend(row, branches)
        found.append(branches)
        if progress:
            progress("following wrong drafts", row + 1, rows, "exit layers" if rows > 1 else "draft models")
    width = max([max_lookahead - 1, *(branches.ids.shape[1] for branches in found)])
    return {
        "draft_ids": ids, "confidence": confidence, "margin": margin, "wrong_index": index,
        "target_probability": target_probability, "target_margin": target_margin,
        "wrong_ids": _stacked([branches.ids for branches in found], width, -1, np.int32),
        "wrong_confidence": _stacked([branches.confidence for branches in found], width, 0, np.float32),
        "wrong_margin": _stacked([branches.margin for branches in found], width, 0, np.float32),
    }  # fmt: skip


def _reach(n: int, max_lookahead: int, limit: int, offset: int, context: int) -> np.ndarray:
    """(N,) tokens to draft behind a wrong one at each position: as many as any policy may ask for there.

    A heuristic schedule that starts at k can have grown by 2 in each of m full acceptances once k + (k+2) + ... + m
    (the targets' own) tokens are out: m (k + m) of them. (A threshold could make it grow faster, on drafts that stop early;
    ``Simulation.exact`` tells where that matters.) The budget leaves the last place to the target.
    """
    at = np.arange(n)
    most = np.full(n, max_lookahead)
    for k in range(max_lookahead + 1):
        m = np.floor((np.sqrt(k * k + 4 * at) - k) / 2).astype(np.int64)  # the largest m with m (k + m) <= t
        most = np.maximum(most, k + 2 * m)
    room = np.minimum(limit - 2 - at, context - offset - at)
    return np.clip(most - 1, 0, np.maximum(room, 0))


def _stacked(parts: list[np.ndarray], width: int, fill: float, kind) -> np.ndarray:
    wide = [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=fill) for part in parts]
    return np.concatenate(wide).astype(kind) if wide else np.zeros((0, width), kind)


def _check_trace(trace: Trace, prompt_ids: Sequence[int]) -> None:
    if not trace.finished or trace.footer.end == "stopped":
        raise UsageError("a probe reads a finished run, this one was stopped: let it run to its end first")
    if trace.header.sampling.get("temperature"):
        raise UsageError("a probe reads a greedy run: set temperature to 0")
    if tuple(trace.header.prompt_ids) != tuple(int(token) for token in prompt_ids):
        raise UsageError("the run has another prompt than the one that was given")


def _pieces(trace: Trace) -> tuple[str, ...]:
    pieces: list[str] = []
    for iteration in trace.iterations:
        pieces += [token.text for token in iteration.draft[: iteration.accepted]]
        pieces += [iteration.ending.text] if iteration.ending else []
    return tuple(pieces)
