"""The work of a run, as messages: plain values that could have come from another process, as on ZeroGPU they do.

A message is a pair: ("state", a state of the run), ("line", a record as JSON), ("check", the comparison with the target
alone) or ("result", what else the work leaves). None only says that a step is over. Whoever drives the work can end it
at each message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from specviz.analysis.lens import lens
from specviz.analysis.measure import measure_probe
from specviz.decoding import FULL_DETAIL, MethodConfig, build, decode
from specviz.models.cores import share_cores
from specviz.models.loading import LoadedModel, Progress, encode_prompt
from specviz.trace import Record, Trace, to_json
from specviz.ui.hands import shared_with_browser
from specviz.ui.requests import DecodeRequest, ProbeRequest, RaceRequest, pair_of
from specviz.ui.shelf import Shelf
from specviz.ui.study import MAX_LOOKAHEAD, Study
from specviz.ui.verdict import verdict

Message = tuple[str, Any]
Work = Callable[[Any, Shelf, "Progress | None"], Iterator["Message | None"]]


def decode_work(request: DecodeRequest, shelf: Shelf, report: Progress | None) -> Iterator[Message | None]:
    """Decode, then decode again with the target alone and compare."""
    yield "state", "loading"
    pair = pair_of(request.pair)
    with shelf.lent(pair.target, pair.draft) as lease:
        yield from lease.load(report)
        target, draft = lease.models
        share_cores(target, draft)
        yield from _warmed(request, target, draft)
        yield "state", "running"
        ours = _Collected()
        for record in _decoded(request, target, draft):
            ours.append(record)
            yield "line", to_json(record)
        if not request.sampling.greedy:
            yield "check", {"kind": "sampled"}
            return
        yield "state", "checking"
        if request.method.name == "autoregressive":
            yield "check", verdict(ours.trace(), ours.trace(), target)
            return
        plain, timed = _Collected(), _Collected()
        # The same detail: a run that also notes alternatives must be compared with one that does.
        runs = [(_decoded(replace(request, method=MethodConfig("autoregressive")), target, None), plain)]
        if shared_with_browser(target, draft):
            runs.append((_decoded(request, target, draft), timed))
        yield from _in_turns(*runs)
        yield "check", verdict(ours.trace(), plain.trace(), target, timed.trace() if timed else None)


# Long enough that each finds the caches as it left them most of the time, short enough that both meet the same machine.
TURN = 16  # tokens


def _in_turns(*runs: tuple[Iterator[Record], _Collected]) -> Iterator[None]:
    """Carry out several runs, some tokens of each in turn: a machine whose pace changes is as fast for one as for the other."""
    with ExitStack() as ends:
        for records, _ in runs:
            ends.enter_context(closing(records))
        until = 0
        while open_runs := [run for run in runs if run[1].open]:
            until += TURN
            for records, collected in open_runs:
                while collected.open and collected.tokens < until:
                    collected.append(next(records))
                    yield None


# The first passes of a model lay out buffers and compile, which would be timed as slow drafting.
WARM_UP = 6  # tokens
_warm: WeakKeyDictionary = WeakKeyDictionary()  # a model -> the methods that have run with it


def _warmed(request: DecodeRequest, target: LoadedModel, draft: LoadedModel | None) -> Iterator[None]:
    """A few tokens that nobody sees, before a method runs for the first time with these models, and the target alone."""
    seen = _warm.setdefault(target.model, set())
    for name in (request.method.name, "autoregressive"):
        if (name, draft and draft.name) in seen:
            continue
        short = replace(request, limit=min(WARM_UP, request.limit))
        if name == "autoregressive":
            short = replace(short, method=MethodConfig(name))
        for _ in _decoded(short, target, draft):
            yield None
        seen.add((name, draft and draft.name))


def _decoded(request: DecodeRequest, target: LoadedModel, draft: LoadedModel | None) -> Iterator[Record]:
    """The records of a request's run."""
    ids = encode_prompt(target, request.prompt, request.chat)
    method = build(request.method, target, draft if request.method.spec.drafter == "assistant" else None)
    records = decode(
        ids, method, request.limit, sampling=request.sampling, detail=FULL_DETAIL, prompt=request.prompt
    )
    with closing(records):
        yield from records


def race_work(request: RaceRequest, shelf: Shelf, report: Progress | None) -> Iterator[Message | None]:
    """Several runs, one after another; a line of its own says where the next lane begins."""
    yield "state", "loading"
    pair = pair_of(request.runs[0].pair)
    with shelf.lent(pair.target, pair.draft) as lease:
        yield from lease.load(report)
        target, draft = lease.models
        share_cores(target, draft)
        yield "state", "running"
        outputs: list[tuple[int, ...]] = []
        for lane, one in enumerate(request.runs):
            yield from _warmed(one, target, draft)
            yield "line", json.dumps({"kind": "lane", "lane": lane, "method": one.method.as_dict()})
            collected = _Collected()
            for record in _decoded(one, target, draft):
                collected.append(record)
                yield "line", to_json(record)
            outputs.append(collected.trace().output_ids)
    if all(one.sampling.greedy for one in request.runs):
        same = sum(ids == outputs[0] for ids in outputs)
        yield "check", {"kind": "race.same" if same == len(outputs) else "race.differs", "same": same, "all": len(outputs)}


def probe_work(request: ProbeRequest, shelf: Shelf, report: Progress | None) -> Iterator[Message | None]:
    """The target's output, what drafters would do at each of its positions, and what the parts cost here."""
    yield "state", "loading"
    pair = pair_of(request.pair)
    names = (request.target, None) if request.target else (pair.target, pair.draft)
    with shelf.lent(*names) as lease:
        yield from lease.load(report)
        target, draft = lease.models
        share_cores(target, draft)
        yield "state", "running"
        ids = encode_prompt(target, request.prompt, request.chat)
        plain = _Collected()
        records = decode(ids, build(MethodConfig("autoregressive"), target), request.limit, prompt=request.prompt)
        with closing(records):
            for record in records:
                plain.append(record)
                yield "progress", {"stage": "target", "done": len(plain), "total": request.limit, "unit": "tokens"}
        trace = plain.trace()
        early = request.drafter == "early-exit"
        probe = measure_probe(
            target, ids, None if early else draft, trace=trace, max_lookahead=MAX_LOOKAHEAD, prompt=request.prompt,
            progress=report,
        )  # fmt: skip
        yield None
        table = lens(target, [*ids, *trace.output_ids][: target.context], prompt=len(ids)) if early else None
        yield None
        costs = shelf.costs(target, None if early else draft, report)
        yield "result", Study(probe, costs, table).pack()


class _Collected(list):
    """The records of a run."""

    tokens = 0  # that they add

    def append(self, record: Record) -> None:
        super().append(record)
        self.tokens += len(record.ids) if record.kind == "iteration" else 0

    @property
    def open(self) -> bool:
        return not self or self[-1].kind != "footer"

    def trace(self) -> Trace:
        return Trace.collect(self)


WORK: dict[str, Work] = {"decode": decode_work, "race": race_work, "probe": probe_work}
