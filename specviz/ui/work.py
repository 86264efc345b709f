"""The work of a run: generators that yield between steps, so that whoever drives them can end them there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from specviz.decoding import FULL_DETAIL, MethodConfig, build, check_run, decode
from specviz.errors import UsageError
from specviz.models.loading import encode_prompt
from specviz.trace import Trace
from specviz.ui.limits import LIMITS
from specviz.ui.requests import Refused
from specviz.ui.runs import Run, Stopped
from specviz.ui.shelf import Shelf
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
    ids = encode_prompt(target, request.prompt, request.chat)
    method = build(request.method, target, draft if request.method.spec.drafter == "assistant" else None)
    run.state = "running"
    ours = _Collected()
    records = decode(
        ids, method, request.limit, sampling=request.sampling, detail=FULL_DETAIL, prompt=request.prompt
    )
    with closing(records):
        for record in records:
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
        again = decode(ids, build(MethodConfig("autoregressive"), target), request.limit, detail=FULL_DETAIL)
        with closing(again):
            for record in again:
                plain.append(record)
                yield
    run.check = verdict(ours.trace(), plain.trace(), target)


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


WORK: dict[str, Work] = {"decode": decode_work}

__all__ = ["LIMITS", "Refused", "WORK", "perform"]
