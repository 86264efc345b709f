"""Measure what the parts of an iteration cost here: on the streams that the decoding core runs on, and its own loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np
import torch

from specviz.analysis.cost import Costs, Timing
from specviz.decoding import Detail, MethodConfig, Sampling, build, decode
from specviz.decoding.methods import starting_sequence
from specviz.decoding.sampling import Picker
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel, Progress, check_pair
from specviz.models.streams import Stream, ids_tensor, layer_count, open_split_stream, open_stream

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
WARM_UP = 1
BURST = 4  # times that a part is run in a row
FEWEST = 3  # repetitions that are made however long they take


def measure_costs(
    target: LoadedModel,
    draft: LoadedModel | None = None,
    *,
    context: int = 128,
    sizes: Sequence[int] = SIZES,
    repetitions: int = 9,
    most_seconds: float = 60.0,
    progress: Progress | None = None,
) -> Costs:
    """Time every part, median and quartiles of the repetitions.

    context: positions in the caches, cut to what the models take. sizes: tokens in one forward, with 1 and 2.
    repetitions run through all parts in turn, so that a slow moment of the machine falls on all of them; they end early
    behind most_seconds. The parts are those of the target alone, of its layers where they can be run apart, and of the
    draft model where one is given.
    """
    if 1 not in sizes:
        raise UsageError("sizes: a forward of 1 token is needed, plain decoding is made of them")
    sizes = sorted(set(sizes))
    room = min([target.context, *([draft.context] if draft else [])])
    context = max(1, min(context, room - max(sizes) - 2))
    sizes = [size for size in sizes if context + size < room]
    bench = _Bench(target, draft, context, sizes)
    try:
        runs = bench.repeat(repetitions, most_seconds, progress)
    finally:
        bench.close()
    timed = {name: _timing(seconds) for name, seconds in runs.items()}
    parts: dict = {"full": tuple(timed["full", size] for size in sizes)}
    if bench.layers:
        lines = [_line(bench.depths, [runs["run", depth, size] for depth in bench.depths]) for size in sizes]
        parts |= {
            "head": tuple(timed["head", size] for size in sizes),
            "layer": tuple(line[0] for line in lines), "fixed": tuple(line[1] for line in lines),
            "embed": timed["embed",], "exit": timed["exit",],
        }  # fmt: skip
    if draft is not None:
        parts["draft_step"] = (timed["draft", 1], timed["draft", 2])
    iteration, token = _loop_costs(target, draft, context)
    return Costs(
        target=target.name, draft=draft.name if draft else None, device=str(target.device),
        threads=torch.get_num_threads(), stream=bench.kind, context=context, sizes=tuple(sizes),
        layers=bench.layers or int(getattr(target.model.config, "num_hidden_layers", 0)),
        iteration=iteration, token=token, prefill_token=bench.prefill / context,
        repetitions=len(runs["full", 1]), load=_load(), **parts,
    )  # fmt: skip


class _Bench:
    """Open streams at the same length, and one callable for each part. Each part restores what it found."""

    def __init__(self, target: LoadedModel, draft: LoadedModel | None, context: int, sizes: Sequence[int]):
        self._device, self._context = target.device, context
        self._opened: list[Stream] = []
        self._ids = _some_ids(target, context + max(sizes))
        self._picker = Picker(Sampling(), Detail(), target.device)
        self.parts: dict[tuple, Callable[[], object]] = {}
        self.layers, self.depths = 0, (0,)
        try:
            with torch.inference_mode():
                self._add_target(target, sizes)
                if not target.is_encoder_decoder:
                    self._add_layers(target, sizes)
                if draft is not None:
                    self._add_draft(target, draft)
        except BaseException:
            self.close()
            raise

    def _open(self, loaded: LoadedModel) -> Stream:
        _, encoder_ids = starting_sequence(loaded, self._ids)
        stream = open_stream(loaded, encoder_ids=encoder_ids, length=self._context + 64)
        self._opened.append(stream)
        stream.forward(self._tensor(self._context), keep=0)
        return stream

    def _tensor(self, count: int):
        return ids_tensor(self._ids[:count], self._device)

    def _add_target(self, target: LoadedModel, sizes: Sequence[int]) -> None:
        stream = self._open(target)
        self.kind = stream.kind
        stream.rewind(0)
        self._sync()
        began = time.perf_counter()
        stream.forward(self._tensor(self._context), keep=0)
        self._sync()
        self.prefill = time.perf_counter() - began
        for size in sizes:

            def full(size=size):
                logits = stream.forward(self._tensor(size), keep=size)
                logits.argmax(dim=-1).tolist()
                return stream

            self.parts["full", size] = full

    def _add_layers(self, target: LoadedModel, sizes: Sequence[int]) -> None:
        try:
            self.layers = layer_count(target)
            stream = open_split_stream(target, length=self._context + 64)
        except UsageError:  # a family whose layers cannot be run apart: two-model methods only
            self.layers = 0
            return
        self._opened.append(stream)
        stream.run(stream.embed(self._tensor(self._context)), 0, self.layers)
        self.depths = tuple(sorted({1, max(1, self.layers // 2), self.layers}))
        for size in sizes:
            hidden = stream.embed(self._tensor(size))
            for depth in self.depths:
                self.parts["run", depth, size] = lambda hidden=hidden, depth=depth: (stream.run(hidden, 0, depth), stream)[1]
            self.parts["head", size] = lambda hidden=hidden: stream.head(hidden).argmax(dim=-1).tolist()
        one = stream.embed(self._tensor(1))
        self.parts["embed",] = lambda: stream.embed(self._tensor(1))
        self.parts["exit",] = lambda: self._picker.pick(stream.head(one[:, -1:])[0])

    def _add_draft(self, target: LoadedModel, draft: LoadedModel) -> None:
        shared = check_pair(target, draft)
        stream = self._open(draft)
        for size in (1, 2):

            def step(size=size):
                self._picker.pick(stream.forward(self._tensor(size), keep=1)[0][:shared])
                return stream

            self.parts["draft", size] = step

    @torch.inference_mode()
    def repeat(self, repetitions: int, most_seconds: float, progress: Progress | None) -> dict[tuple, list[float]]:
        """Seconds of every repetition of every part."""
        runs: dict[tuple, list[float]] = {name: [] for name in self.parts}
        began = time.perf_counter()
        for turn in range(-WARM_UP, repetitions):
            if turn >= FEWEST and time.perf_counter() - began > most_seconds:
                break
            for name, part in self.parts.items():
                burst = []
                for _ in range(BURST):
                    self._sync()
                    start = time.perf_counter()
                    touched = part()
                    self._sync()
                    burst.append(time.perf_counter() - start)
                    if any(touched is stream for stream in self._opened):
                        touched.rewind(self._context)
                if turn >= 0:
                    # The first of a burst finds another part's weights in the processor's caches, which in a run
                    # happens once a phase and not once a token.
                    runs[name].append(float(np.median(burst[1:])))
            if progress:
                progress("measuring costs", turn + WARM_UP + 1, repetitions + WARM_UP, "repetitions")
        return runs

    def _sync(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def close(self) -> None:
        for stream in self._opened:
            stream.close()


def _loop_costs(target: LoadedModel, draft: LoadedModel | None, context: int) -> tuple[Timing, Timing]:
    """The loop's own time, an iteration and a drafted token, from real iterations: what is neither drafting nor
    verifying. One more drafted token costs the same wherever the draft comes from."""
    ids = _some_ids(target, context)
    none = list(_own_seconds(decode(ids, build(MethodConfig("autoregressive"), target), 33)))
    many = 8
    config = MethodConfig("constant", lookahead=many) if draft else MethodConfig("early-exit", lookahead=many, exit_layer=1)
    try:
        method = build(config, target, draft)
    except UsageError:
        return _timing([seconds for _, seconds in none]), (0.0, 0.0, 0.0)
    some = [
        (seconds, drafted) for drafted, seconds in _own_seconds(islice(decode(ids, method, 8 * many), 17)) if drafted
    ]
    iteration = _timing([seconds for _, seconds in none])
    each = [(seconds - iteration[0]) / drafted for seconds, drafted in some]
    return iteration, _timing(np.maximum(each, 0.0)) if each else (0.0, 0.0, 0.0)


def _own_seconds(records: Iterable) -> Iterable[tuple[int, float]]:
    """(drafted, seconds beside drafting and verifying) of each iteration but the first, which also prefills."""
    records = iter(records)
    while True:
        began = time.perf_counter()
        record = next(records, None)
        if record is None:
            return
        if record.kind == "iteration" and record.index:
            own = time.perf_counter() - began - record.draft_seconds - record.verify_seconds
            yield record.drafted, own


def _some_ids(loaded: LoadedModel, count: int) -> list[int]:
    """Token ids that end nothing."""
    generator = np.random.default_rng(0)
    size = min(loaded.vocab_size, len(loaded.tokenizer))
    ids = [i for i in generator.integers(0, size, 4 * count + 16).tolist() if i not in loaded.eos_ids]
    return ids[:count]


def _timing(seconds) -> Timing:
    median, low, high = np.quantile(np.asarray(seconds, np.float64), [0.5, 0.25, 0.75]).tolist()
    return median, low, high


def _line(depths: Sequence[int], seconds: Sequence[Sequence[float]]) -> tuple[Timing, Timing]:
    """Seconds of runs through several depths, repetition by repetition -> (one layer, what a call costs beside them)."""
    if len(depths) < 2:
        return _timing(np.array(seconds[0]) / depths[0]), (0.0, 0.0, 0.0)
    slopes, offsets = np.polyfit(depths, np.array(seconds), 1)
    # Noise may turn a small part negative; a layer costs something, a call at least nothing.
    return _timing(np.maximum(slopes, 1e-9)), _timing(np.maximum(offsets, 0.0))


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
