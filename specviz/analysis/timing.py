"""Measure what the parts of an iteration cost here: on the drafters and verifiers of the decoding core, and its loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import torch

from specviz.analysis.cost import Costs, Timing
from specviz.decoding import Detail, MethodConfig, Sampling, build, decode
from specviz.decoding.drafters import Draft
from specviz.decoding.methods import Session
from specviz.decoding.policies import Constant
from specviz.decoding.sampling import Pick, Picker
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel, Progress
from specviz.models.streams import ids_tensor, layer_count

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
SHORT, LONG = 1, 5  # drafted tokens of the two phases that a draft step is the difference of
WARM_UP = 1
BURST = 4  # times that a part is run in a row
FEWEST = 3  # repetitions that are made however long they take

Part = Callable[[], float]  # runs a part once, returns its seconds, and leaves the caches as they were


def measure_costs(
    target: LoadedModel,
    draft: LoadedModel | None = None,
    *,
    context: int = 128,
    sizes: Sequence[int] = SIZES,
    repetitions: int = 7,
    most_seconds: float = 60.0,
    progress: Progress | None = None,
) -> Costs:
    """Time every part, median and quartiles of the repetitions.

    context: positions in the caches, cut to what the models take. sizes: tokens of a verification, 1 among them.
    repetitions run through all parts in turn, so that a slow moment of the machine falls on all of them; they end early
    behind most_seconds. The parts are those of the target alone, of its layers where they can be run apart, and of the
    draft model where one is given.
    """
    if 1 not in sizes:
        raise UsageError("sizes: a forward of 1 token is needed, plain decoding is made of them")
    sizes = sorted(set(sizes))
    room = min([target.context, *([draft.context] if draft else [])])
    context = max(4, min(context, room - max(sizes) - 4))
    sizes = [size for size in sizes if context + size <= room]
    bench = _Bench(target, draft, context, sizes)
    try:
        runs = bench.repeat(repetitions, most_seconds, progress)
    finally:
        bench.close()
    parts: dict = {"full": tuple(_timing(runs["full", size]) for size in sizes)}
    if bench.depths:
        parts |= _layer_parts(runs, bench.depths, bench.layers, sizes)
        parts["head"] = _timing(runs["head",])
    if draft is not None:
        one, many, behind = (np.array(runs["draft", count]) for count in (SHORT, LONG, "behind"))
        step = (many - one) / (LONG - SHORT)
        parts |= {
            "step": _timing(np.maximum(step, 1e-9)),
            "first": _timing(np.maximum(one - SHORT * step, 0.0)),
            "behind_full": _timing(np.maximum(behind - one, 0.0)),
        }
    iteration, token = _loop_costs(target, draft, context)
    return Costs(
        target=target.name, draft=draft.name if draft else None, device=str(target.device),
        threads=torch.get_num_threads(), stream=bench.kind, context=context, sizes=tuple(sizes), layers=bench.layers,
        iteration=iteration, token=token, prefill_token=bench.prefill / context,
        repetitions=len(runs["full", 1]), load=_load(), **parts,
    )  # fmt: skip


def _layer_parts(runs: dict, depths: Sequence[int], layers: int, sizes: Sequence[int]) -> dict:
    """From draft phases and verifications at a few exit layers to the costs of a layer and of the rest.

    A verification of n tokens behind exit E is rest + (L - E) layer; a draft phase of k tokens is
    once + (k + 1) E layer + k rest. Both are solved by least squares, repetition by repetition.
    """
    layer, rest = [], []
    for size in sizes:
        rows = np.array([[layers - depth, 1.0] for depth in depths])
        solved = _solved(rows, np.array([runs["remainder", depth, size] for depth in depths]))
        layer.append(_timing(solved[0]))
        rest.append(_timing(solved[1]))
    pairs = [(depth, count) for depth in depths for count in (SHORT, LONG)]
    rows = np.array([[(count + 1) * depth, count, 1.0] for depth, count in pairs])
    solved = _solved(rows, np.array([runs["early", depth, count] for depth, count in pairs]))
    return {
        "verify_layer": tuple(layer), "verify_rest": tuple(rest),
        "draft_layer": _timing(solved[0]), "draft_rest": _timing(solved[1]), "draft_once": _timing(solved[2]),
    }  # fmt: skip


def _solved(rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Least squares: rows (points, unknowns), seconds (points, repetitions) -> (unknowns, repetitions). Noise may turn a
    small part negative; a layer costs something, the rest at least nothing."""
    solved = np.linalg.lstsq(rows, seconds, rcond=None)[0]
    return np.maximum(solved, np.array([1e-9] + [0.0] * (len(solved) - 1))[:, None])


class _Bench:
    """Open sessions of the core at the same length, and one callable for each part."""

    def __init__(self, target: LoadedModel, draft: LoadedModel | None, context: int, sizes: Sequence[int]):
        # A draft that happens to hold an end of sequence would stop short of what is to be timed.
        self._target = replace(target, eos_ids=frozenset())
        self._draft = draft
        self._device, self._context, self._sizes = target.device, context, sizes
        self._ids = _some_ids(target, context)
        self._sessions: list[Session] = []
        self.parts: dict[tuple, Part] = {}
        self.depths: tuple[int, ...] = ()
        try:
            self.layers = layer_count(target)
            self.depths = tuple(sorted({1, self.layers // 2, self.layers - 1} - {0, self.layers}))
        except UsageError:  # a family whose layers cannot be run apart: two-model methods only
            self.layers = int(getattr(target.model.config, "num_hidden_layers", 0))
        try:
            with torch.inference_mode():
                self._add_full()
                for depth in self.depths:
                    self._add_early(depth)
                if draft is not None:
                    self._add_draft()
        except BaseException:
            self.close()
            raise

    def _open(self, config: MethodConfig) -> Session:
        method = build(config, self._target, self._draft)
        picker = Picker(Sampling(), Detail(), self._device)
        session = method.open(self._ids, max(self._sizes) + 1, picker)
        self._sessions.append(session)
        self._sync()
        began = time.perf_counter()
        session.prefill()
        self._sync()
        self._prefilled = time.perf_counter() - began
        return session

    def _timed(self, session: Session, work: Callable[[], object], before: Callable[[], object] | None = None) -> Part:
        """Time `work`; `before` runs untimed ahead of it. In a run drafting and verifying alternate, and each finds the
        other's weights in the processor's caches: what that costs belongs to the phase."""
        length = len(session.sequence) - 1

        def part() -> float:
            if before is not None:
                before()
                session.rewind(length)
            self._sync()
            began = time.perf_counter()
            work()
            self._sync()
            seconds = time.perf_counter() - began
            session.rewind(length)
            return seconds

        return part

    def _add_full(self) -> None:
        session = self._open(MethodConfig("autoregressive"))
        self.kind, self.prefill = session.stream_kinds["target"], self._prefilled
        for size in self._sizes:
            draft = Draft(_picks(self._ids, size - 1))
            self.parts["full", size] = self._timed(session, lambda draft=draft: _verified(session, draft))

    def _add_early(self, depth: int) -> None:
        session = self._open(MethodConfig("early-exit", lookahead=LONG, exit_layer=depth))
        stream = session.verifier.stream
        states = {size: stream.embed(ids_tensor(self._ids[:1] * size, self._device)) for size in (*self._sizes, SHORT + 1)}
        drafts = {size: Draft(_picks(self._ids, size - 1), exit_states=states[size]) for size in states}
        for count in (SHORT, LONG):
            self.parts["early", depth, count] = self._timed(
                session, lambda count=count: _proposed(session, count), lambda: _verified(session, drafts[SHORT + 1])
            )
        for size in self._sizes:
            self.parts["remainder", depth, size] = self._timed(
                session, lambda size=size: _verified(session, drafts[size]), lambda: _proposed(session, SHORT)
            )
        if ("head",) not in self.parts:
            self.parts["head",] = self._timed(session, lambda: stream.head(states[1]))

    def _add_draft(self) -> None:
        session = self._open(MethodConfig("constant", lookahead=LONG))
        checked = Draft(_picks(self._ids, SHORT))
        for count in (SHORT, LONG):
            self.parts["draft", count] = self._timed(
                session, lambda count=count: _proposed(session, count), lambda: _verified(session, checked)
            )
        longer = [*session.sequence, self._ids[0]]
        self.parts["draft", "behind"] = self._timed(
            session, lambda: _proposed(session, SHORT, longer), lambda: _verified(session, checked)
        )
        for size in self._sizes[1:]:
            draft = Draft(_picks(self._ids, size - 1))
            self.parts["full", size] = self._timed(
                session, lambda draft=draft: _verified(session, draft), lambda: _proposed(session, SHORT)
            )

    @torch.inference_mode()
    def repeat(self, repetitions: int, most_seconds: float, progress: Progress | None) -> dict[tuple, list[float]]:
        """Seconds of every repetition of every part."""
        runs: dict[tuple, list[float]] = {name: [] for name in self.parts}
        start = time.perf_counter()
        for turn in range(-WARM_UP, repetitions):
            if turn >= FEWEST and time.perf_counter() - start > most_seconds:
                break
            for name, part in self.parts.items():
                burst = [part() for _ in range(BURST)]
                if turn >= 0:
                    runs[name].append(float(np.median(burst[1:])))  # the first finds some other part's traces
            if progress:
                progress("measuring costs", turn + WARM_UP + 1, repetitions + WARM_UP, "repetitions")
        return runs

    def _sync(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def close(self) -> None:
        for session in self._sessions:
            session.close()


def _proposed(session: Session, count: int, sequence: Sequence[int] | None = None) -> Draft:
    return session.drafter.propose(session.sequence if sequence is None else sequence, Constant(count), count, count)


def _verified(session: Session, draft: Draft) -> list[int]:
    return session.verifier.verify(session.sequence, draft).argmax(dim=-1).tolist()


def _picks(ids: Sequence[int], count: int) -> list[Pick]:
    return [Pick(ids[index % len(ids)], 1.0) for index in range(count)]


def _loop_costs(target: LoadedModel, draft: LoadedModel | None, context: int) -> tuple[Timing, Timing]:
    """The loop's own time, an iteration and a drafted token, from real iterations: what is neither drafting nor
    verifying. One more drafted token costs the same wherever the draft comes from."""
    ids = _some_ids(target, context)
    none = [seconds for _, seconds in _own_seconds(decode(ids, build(MethodConfig("autoregressive"), target), 33))]
    many = 8
    config = MethodConfig("constant", lookahead=many) if draft else MethodConfig("early-exit", lookahead=many, exit_layer=1)
    try:
        method = build(config, target, draft)
    except UsageError:
        method = None
    some = [] if method is None else [
        (seconds, drafted) for drafted, seconds in _own_seconds(islice(decode(ids, method, 16 * many), 25)) if drafted
    ]  # fmt: skip
    if not none:  # the first token ended the text
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    iteration = _timing(none)
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


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
