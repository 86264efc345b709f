"""The work of a run: generators that yield between steps, so that whoever drives them can end them there."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from specviz.analysis.lens import lens
from specviz.analysis.measure import measure_probe
from specviz.decoding import FULL_DETAIL, MethodConfig, build, check_run, decode
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel, encode_prompt
from specviz.trace import Record, Trace
from specviz.ui.requests import DecodeRequest
from specviz.ui.runs import Run, Stopped
from specviz.ui.shelf import Shelf
from specviz.ui.study import MAX_LOOKAHEAD, Study
from specviz.ui.texts import text

log = logging.getLogger("specviz")

Work = Callable[[Run, Shelf], Iterator[None]]


def perform(run: Run, shelf: Shelf) -> Iterator[None]:
    """Carry out a run. Every way out leaves the run in one of its ended states."""
    try:
        with closing(WORK[run.kind](run, shelf)) as steps:
            for _ in steps:
                if run.stopping():
                    raise Stopped
                yield
        run.state = "done"
    except (Stopped, GeneratorExit) as why:
        run.state = "stopped"
        if isinstance(why, GeneratorExit):
            raise
    except UsageError as error:
        run.failure = {"message": str(error), "field": getattr(error, "field", None) or field_of(error)}
        run.state = "failed"
    except Exception:
        log.exception("run failed")
        run.failure = {"message": text("error.internal", getattr(run.request, "lang", "en")), "field": None}
        run.state = "failed"


def decode_work(run: Run, shelf: Shelf) -> Iterator[None]:
    """Decode, then decode again with the target alone and compare."""
    request = run.request
    run.state = "loading"
    target, draft = shelf.pair(request.pair, run.report)
    yield
    run.state = "running"
    ours = _Collected()
    for record in _decoded(request, target, draft):
        run.add(record)
        ours.append(record)
        yield
    if not request.sampling.greedy:
        run.check = {"kind": "sampled"}
        return
    run.state = "checking"
    if request.method.name == "autoregressive":
        plain = ours
    else:
        plain = _Collected()
        # The same detail: a run that also notes alternatives must be compared with one that does.
        for record in _decoded(replace(request, method=MethodConfig("autoregressive")), target, None):
            plain.append(record)
            yield
    run.check = verdict(ours.trace(), plain.trace(), target)


def _decoded(request: DecodeRequest, target: LoadedModel, draft: LoadedModel | None) -> Iterator[Record]:
    """The records of a request's run."""
    ids = encode_prompt(target, request.prompt, request.chat)
    method = build(request.method, target, draft if request.method.spec.drafter == "assistant" else None)
    records = decode(
        ids, method, request.limit, sampling=request.sampling, detail=FULL_DETAIL, prompt=request.prompt
    )
    with closing(records):
        yield from records


def race_work(run: Run, shelf: Shelf) -> Iterator[None]:
    """Several runs, one after another; a line of its own says where the next lane begins."""
    requests = run.request.runs
    run.state = "loading"
    target, draft = shelf.pair(requests[0].pair, run.report)
    yield
    run.state = "running"
    outputs: list[tuple[int, ...]] = []
    for lane, request in enumerate(requests):
        run.lines.append(json.dumps({"kind": "lane", "lane": lane, "method": request.method.as_dict()}))
        collected = _Collected()
        for record in _decoded(request, target, draft):
            run.add(record)
            collected.append(record)
            yield
        outputs.append(collected.trace().output_ids)
    if all(request.sampling.greedy for request in requests):
        same = sum(ids == outputs[0] for ids in outputs)
        run.check = {"kind": "race.same" if same == len(outputs) else "race.differs", "same": same, "all": len(outputs)}


def probe_work(run: Run, shelf: Shelf) -> Iterator[None]:
    """The target's output, what drafters would do at each of its positions, and what the parts cost here."""
    request = run.request
    run.state = "loading"
    if request.target:
        target, draft = shelf.model(request.target, run.report), None
    else:
        target, draft = shelf.pair(request.pair, run.report)
    yield
    run.state = "running"
    ids = encode_prompt(target, request.prompt, request.chat)
    plain = _Collected()
    records = decode(ids, build(MethodConfig("autoregressive"), target), request.limit, prompt=request.prompt)
    with closing(records):
        for record in records:
            plain.append(record)
            run.report("target", len(plain), request.limit, "tokens")
            yield
    trace = plain.trace()
    early = request.drafter == "early-exit"
    probe = measure_probe(
        target, ids, None if early else draft, trace=trace, max_lookahead=MAX_LOOKAHEAD, prompt=request.prompt,
        progress=run.report,
    )  # fmt: skip
    yield
    table = lens(target, [*ids, *trace.output_ids][: target.context], prompt=len(ids)) if early else None
    yield
    costs = shelf.costs(target, None if early else draft, run.report)
    run.result = Study(probe, costs, table)


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


def field_of(error: UsageError) -> str | None:
    """The control that a message of the core is about: they begin with the name of the parameter."""
    word = str(error).split("=", 1)[0]
    known = ("lookahead", "threshold", "exit_layer", "ngram", "limit", "temperature", "top_k", "top_p", "seed")
    if word in known:
        return word
    return "prompt" if str(error).startswith("the prompt") else None


WORK: dict[str, Work] = {"decode": decode_work, "race": race_work, "probe": probe_work}
