"""The work of a run, as messages: plain values that could have come from another process, as on ZeroGPU they do.

A message is a pair: ("state", a state of the run), ("line", a record as JSON), ("check", the comparison with the target
alone) or ("result", what else the work leaves). None only says that a step is over. Whoever drives the work can end it
at each message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from specviz.analysis.lens import lens
from specviz.analysis.measure import measure_probe
from specviz.decoding import FULL_DETAIL, MethodConfig, build, check_run, decode
from specviz.models.loading import LoadedModel, Progress, encode_prompt
from specviz.trace import Record, Trace, to_json
from specviz.ui.hands import share_cores
from specviz.ui.requests import DecodeRequest, ProbeRequest, RaceRequest, pair_of
from specviz.ui.shelf import Shelf
from specviz.ui.study import MAX_LOOKAHEAD, Study

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
            plain = ours
        else:
            plain = _Collected()
            # The same detail: a run that also notes alternatives must be compared with one that does.
            for record in _decoded(replace(request, method=MethodConfig("autoregressive")), target, None):
                plain.append(record)
                yield None
        yield "check", verdict(ours.trace(), plain.trace(), target)


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
    def trace(self) -> Trace:
        return Trace.collect(self)


def verdict(trace: Trace, plain: Trace, target) -> dict[str, Any]:
    """The comparison with the target alone as the page shows it: catalogue keys and numbers, no sentences."""
    check = check_run(trace, target, plain)
    out: dict[str, Any] = {
        "kind": "identical" if check.identical else "differs",
        "tokens": check.tokens,
        "plain_tokens": check.plain_tokens,
        "speedup": check.speedup,
        "plain_seconds": plain.footer.seconds if plain.footer else None,
        "reasons": [],
    }
    if not check.identical:
        out |= {
            "position": check.position + 1,
            "ours": repr(check.ours[1]) if check.ours else "\u2014",
            "theirs": repr(check.plain[1]) if check.plain else "\u2014",
        }
        if check.near_tie:
            out["reasons"].append({"key": "reason.near_tie", "values": {"gap": f"{check.gap:.2g}"}})
    if check.speedup is not None and check.speedup < 0.98 and trace.header.method.get("name") != "autoregressive":
        out["reasons"].append(why_slow(trace, plain))
    return out


def why_slow(trace: Trace, plain: Trace) -> dict[str, Any]:
    """Of the three ways to lose time, the one that lost most."""
    drafted = sum(it.drafted for it in trace.iterations)
    accepted = sum(it.accepted for it in trace.iterations)
    drafting = sum(it.draft_seconds for it in trace.iterations)
    verifying = sum(it.verify_seconds for it in trace.iterations)
    one = sum(it.verify_seconds for it in plain.iterations) / max(1, len(plain.iterations))
    ratio = verifying / max(1, len(trace.iterations)) / one if one else 1.0
    rate = accepted / drafted if drafted else 0.0
    share = drafting / (drafting + verifying) if drafting + verifying else 0.0
    if share > 0.5 and rate >= 0.5:
        return {"key": "reason.slow.draft", "values": {"share": round(100 * share)}}
    if ratio > 1.5 and rate >= 0.4:
        return {"key": "reason.slow.verify", "values": {"ratio": round(ratio, 1)}}
    if rate >= 0.6:
        return {"key": "reason.slow.draft", "values": {"share": round(100 * share)}}
    return {"key": "reason.slow.acceptance", "values": {"rate": round(100 * rate)}}


WORK: dict[str, Work] = {"decode": decode_work, "race": race_work, "probe": probe_work}
