"""Who reads a finished output for a probe: the exit layers of a target, or a draft model. Memory: see ``measure.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from specviz.analysis.branches import (
    MOST_BRANCHES,
    Branches,
    BranchStream,
    agree,
    continue_one_by_one,
    continue_together,
)
from specviz.decoding.methods import starting_sequence
from specviz.errors import UsageError
from specviz.models.families import SPLIT
from specviz.models.loading import UNBOUNDED, LoadedModel, check_pair
from specviz.models.streams import Stream, ids_tensor, layer_count, open_stream

MOST_ELEMENTS = 2**23
MOST_ROWS = 256

TOGETHER, ONE_BY_ONE = "together", "one by one"

Step = Callable[[Sequence[int]], Tensor]  # feeds tokens, returns the logits (1, V) behind the last one
Rewind = Callable[[int], None]

# What two ways of computing the same probability may differ by; low precision rounds by hundredths.
TOLERANCE = {torch.float32: 1e-2}
LOW_PRECISION_TOLERANCE = 0.1


class Reader(Protocol):
    """Reads an output once and says what its rows would draft at each position."""

    rows: tuple[int, ...]
    offset: int  # positions before the output
    context: int  # longest sequence that the drafter reads
    way: str  # how continuations were run

    def read(self, output: Sequence[int]) -> Iterator[tuple[slice, int | None, tuple[Tensor, ...]]]:
        """Yields (output positions, row, (ids, confidences, margins)), and with row None what the target gave to its
        own tokens there: (probabilities, margins)."""

    def extend(self, row: int, branches: Branches) -> None:
        """Fill the continuations of a row's wrong positions."""

    def close(self) -> None: ...


def chunk_rows(loaded: LoadedModel, length: int) -> int:
    """C, positions of which logits and attention scores are alive at once: neither (C, V) nor (heads, C, length) holds
    more than MOST_ELEMENTS numbers, unless a single row does."""
    config = loaded.model.config
    heads = next(
        (getattr(config, key) for key in ("num_attention_heads", "num_heads", "n_head") if hasattr(config, key)), 32
    )
    rows = min(MOST_ROWS, MOST_ELEMENTS // loaded.vocab_size, MOST_ELEMENTS // (heads * max(length, 1)))
    return max(rows, 1)


def judge(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (n, V) -> greedy ids, their probabilities, and how far the second best logit is behind, (n,) each."""
    logits = logits.float()
    best, ids = logits.max(dim=-1)
    second = logits.topk(min(2, logits.shape[-1]), dim=-1).values[:, -1]
    return ids.int(), (best - logits.logsumexp(dim=-1)).exp().clamp(max=1.0), best - second


def judge_given(logits: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (n, V), ids (n,) -> their probabilities, and their distance to the best other logit, (n,) each."""
    logits = logits.float()
    mine = logits.gather(1, given[:, None])[:, 0]
    top = logits.topk(min(2, logits.shape[-1]), dim=-1)
    other = torch.where(top.indices[:, 0] == given, top.values[:, -1], top.values[:, 0])
    return (mine - logits.logsumexp(dim=-1)).exp().clamp(max=1.0), mine - other


def _chunks(start: Sequence[int], output: Sequence[int], rows: int) -> Iterator[tuple[list[int], slice]]:
    """The sequence in parts: ids to read, and which output positions their predictions are for (empty: the prompt)."""
    for begin in range(0, len(start) - 1, rows):
        yield list(start[begin : min(begin + rows, len(start) - 1)]), slice(0, 0)
    tail = [start[-1], *output[:-1]]
    for begin in range(0, len(output), rows):
        part = tail[begin : begin + rows]
        yield part, slice(begin, begin + len(part))


class ExitReader:
    """All exit layers of a target from one forward; the last layer tells the target's own probabilities."""

    def __init__(self, target: LoadedModel, prompt_ids: Sequence[int], exit_layers: Sequence[int] | None):
        self._layers = layer_count(target)
        self.rows = tuple(range(1, self._layers)) if exit_layers is None else tuple(sorted(set(exit_layers)))
        for layer in self.rows:
            if not 1 <= layer < self._layers:
                raise UsageError(f"exit_layer={layer}: this model has {self._layers} layers, choose 1..{self._layers - 1}")
        if not self.rows:
            raise UsageError(f"no exit layers: name at least one of 1..{self._layers - 1}")
        self._target = target
        self._start = list(prompt_ids)
        self.offset, self.context = len(self._start), UNBOUNDED
        self._stream = BranchStream(target)
        self._extender = _Extender(target, self._stream, judge)

    @property
    def way(self) -> str:
        return self._extender.way

    def read(self, output: Sequence[int]) -> Iterator[tuple[slice, int | None, tuple[Tensor, ...]]]:
        self._output = output
        stream = self._stream
        row_of = {layer: row for row, layer in enumerate(self.rows)}
        for ids, place in self._parts():
            hidden = stream.embed(ids_tensor(ids, stream.device))
            if not place.stop:
                stream.run(hidden, 0, self._layers)
                continue
            for layer in range(1, self._layers + 1):
                hidden = stream.run(hidden, layer - 1, layer)
                if layer in row_of:
                    yield place, row_of[layer], judge(stream.head(hidden))
            yield place, None, judge_given(stream.head(hidden), ids_tensor(output[place], stream.device))

    def _parts(self) -> Iterator[tuple[list[int], slice]]:
        return _chunks(self._start, self._output, chunk_rows(self._target, self.offset + len(self._output)))

    def extend(self, row: int, branches: Branches) -> None:
        layer = self.rows[row]
        self._extender.extend(branches, layer, lambda: self._fresh(layer))

    def _fresh(self, layer: int) -> tuple[Step, Rewind, Callable[[], None]]:
        """A stream of its own that has read the whole sequence, and exits at a layer."""
        stream = BranchStream(self._target)
        for ids, _ in self._parts():
            stream.run(stream.embed(ids_tensor(ids, stream.device)), 0, self._layers)

        def step(ids: Sequence[int]) -> Tensor:
            return stream.head(stream.run(stream.embed(ids_tensor(ids, stream.device)), 0, layer)[:, -1:])

        # The layers behind the exit never see a draft, so they are as long as the prefix and a rewind to it is allowed.
        return step, stream.rewind, stream.close

    def close(self) -> None:
        self._stream.close()


class DraftReader:
    """A draft model; beside it the target reads the output too, for its own probabilities."""

    rows = (0,)

    def __init__(self, target: LoadedModel, draft: LoadedModel, prompt_ids: Sequence[int], limit: int):
        self._shared = check_pair(target, draft)
        self._target, self._draft = target, draft
        self._start, self._encoder_ids = starting_sequence(target, prompt_ids)
        self.offset, self.context = len(self._start), draft.context
        self._room = self.offset + limit
        branching = draft.model.config.model_type in SPLIT
        self._stream: Stream = BranchStream(draft) if branching else self._open(draft)
        self._extender = _Extender(draft, self._stream, self._judge)

    @property
    def way(self) -> str:
        return self._extender.way

    def _open(self, loaded: LoadedModel) -> Stream:
        return open_stream(loaded, encoder_ids=self._encoder_ids, length=self._room)

    def _judge(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return judge(logits[:, : self._shared])

    def read(self, output: Sequence[int]) -> Iterator[tuple[slice, int | None, tuple[Tensor, ...]]]:
        self._output = output
        stream = self._open(self._target)
        try:
            for ids, place in _chunks(self._start, output, chunk_rows(self._target, self.offset + len(output))):
                logits = stream.forward(ids_tensor(ids, stream.device), keep=len(ids) if place.stop else 0)
                if place.stop:
                    yield place, None, judge_given(logits, ids_tensor(output[place], logits.device))
        finally:
            stream.close()
        for place, logits in self._run(self._stream):
            yield place, 0, self._judge(logits)

    def _run(self, stream: Stream) -> Iterator[tuple[slice, Tensor]]:
        """Read as much of the sequence as fits into the draft model's context window."""
        for ids, place in _chunks(self._start, self._output, chunk_rows(self._draft, self.offset + len(self._output))):
            # A target may pick an id that the draft model does not have; it then reads its last one (AssistantDrafter).
            ids = [min(token, self._draft.vocab_size - 1) for token in ids[: max(self.context - stream.length, 0)]]
            if not ids:
                return
            logits = stream.forward(ids_tensor(ids, stream.device), keep=len(ids) if place.stop else 0)
            if place.stop:
                yield slice(place.start, place.start + len(ids)), logits

    def extend(self, row: int, branches: Branches) -> None:
        layers = self._stream.layers if isinstance(self._stream, BranchStream) else 0
        self._extender.extend(branches, layers, self._fresh)

    def _fresh(self) -> tuple[Step, Rewind, Callable[[], None]]:
        """A stream of its own that has read the whole sequence."""
        stream = self._open(self._draft)
        for _ in self._run(stream):
            pass
        return lambda ids: stream.forward(ids_tensor(ids, stream.device), keep=1), stream.rewind, stream.close

    def close(self) -> None:
        self._stream.close()


class _Extender:
    """Runs continuations side by side where the model allows it. The first one is checked against running it alone:
    what an attention kernel makes of a mask is the model's business, and a wrong probe would look like a right one."""

    def __init__(self, loaded: LoadedModel, stream: Stream, judge_: Callable):
        self._loaded, self._stream, self._judge = loaded, stream, judge_
        branching = isinstance(stream, BranchStream) and stream.takes_any_mask
        self.way = TOGETHER if branching else ONE_BY_ONE
        self._checked = False

    def extend(
        self, branches: Branches, last: int, fresh: Callable[[], tuple[Step, Rewind, Callable[[], None]]]
    ) -> None:
        lines = np.flatnonzero(branches.reach > 0)
        if not len(lines):
            return
        if self.way == TOGETHER:
            length = self._stream.length + MOST_BRANCHES * int(branches.reach.max())
            most = min(MOST_BRANCHES, chunk_rows(self._loaded, length))
            continue_together(self._stream, branches, last, self._judge, most)
            if self._checked:
                return
        step, rewind, close = fresh()
        try:
            if self.way == TOGETHER:
                alone = branches.emptied()
                continue_one_by_one(step, rewind, alone, self._judge, lines[-1:])
                tolerance = TOLERANCE.get(self._loaded.dtype, LOW_PRECISION_TOLERANCE)
                if agree(branches, alone, lines[-1], tolerance):
                    self._checked = True
                    return
                self.way = ONE_BY_ONE
                branches.empty()
            continue_one_by_one(step, rewind, branches, self._judge)
        finally:
            close()
