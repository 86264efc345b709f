"""Named endpoints for programs: ``gradio_client`` finds decode, probe and sweep with these parameters.

    from gradio_client import Client
    client = Client("http://127.0.0.1:7860")
    client.predict(prompt="Once upon a time", pair="tiny", method="dynamic", api_name="/decode")

They wait in the same queue as the visitors' runs and meet the same checks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import gradio as gr
from gradio.context import LocalContext

from specviz.analysis import cost
from specviz.analysis.grid import simulate_grid
from specviz.models import zoo
from specviz.ui.limits import LIMITS
from specviz.ui.perform import perform
from specviz.ui.requests import Reader, Refused, decode_request, probe_request
from specviz.ui.runs import Run
from specviz.ui.study import MAX_LOOKAHEAD, Study
from specviz.ui.texts import text

BREATH_SECONDS = 0.1  # how often a call looks whether its caller still waits


def register(site, concurrency_id: str) -> None:
    """Add the endpoints to the Blocks that are being built."""

    def carry_out(kind: str, request: Any) -> Run:
        run = site.runs.submit(kind, request, claimed=True)
        if run is None:
            raise _refusal(text("error.busy"))
        waiting = _waits()
        for _ in site.hands.carry(perform(run, site.shelf), BREATH_SECONDS):
            run.touched = time.monotonic()  # nobody pulls: the caller waits for the whole answer
            if not waiting():
                run.stop()
        site.runs.forget(run)  # the caller has the answer, and knows no name to ask again
        if run.state != "done":
            raise _refusal(run.failure["message"] if run.failure else "stopped")
        return run

    def checked(read, data: dict[str, Any]):
        try:
            return read({key: value for key, value in data.items() if value is not None})
        except Refused as error:
            raise _refusal(str(error)) from None

    def decode(
        prompt: str,
        pair: str = zoo.default_pair().name,
        method: str = "dynamic",
        limit: int = 96,
        lookahead: int | None = None,
        threshold: float | None = None,
        exit_layer: int | None = None,
        ngram: int | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        chat: bool = True,
    ) -> dict:
        """Decode a prompt and return the whole log, the text, and the comparison with the target alone.

        pair: models by their name in the zoo. method: autoregressive, constant, heuristic, dynamic, oracle,
        prompt-lookup, early-exit … lookahead, threshold, exit_layer, ngram: of the method; None is its default.
        limit: most new tokens. temperature 0 is greedy; top_k, top_p and seed are for sampling.
        """
        run = carry_out("decode", checked(decode_request, locals_of(locals())))
        records = [json.loads(line) for line in run.lines]
        return {"records": records, "text": _text(records), "check": run.check}

    def probe(
        prompt: str, pair: str = zoo.default_pair().name, drafter: str | None = None, limit: int = 96,
        chat: bool = True,
    ) -> dict:  # fmt: skip
        """Measure once what every policy would see on the target's own greedy output.

        drafter: "assistant" for the pair's draft model, "early-exit" for the target's exit layers; None chooses.
        Returns for each row (exit layer, or 0) and position: match, confidence, oracle lookahead.
        """
        study: Study = carry_out("probe", checked(probe_request, locals_of(locals()))).result
        found = study.probe
        return {
            "kind": found.kind, "target": found.target, "draft": found.draft, "rows": list(found.rows),
            "output_ids": list(found.output_ids), "pieces": list(found.pieces),
            "match": found.match.tolist(), "confidence": found.confidence.round(5).tolist(),
            "oracle": found.run[:, :-1].tolist(), "max_lookahead": found.max_lookahead,
        }  # fmt: skip

    def sweep(
        prompt: str, pair: str = zoo.default_pair().name, drafter: str | None = None, policy: str = "dynamic",
        lookaheads: list[int] | None = None, thresholds: list[float] | None = None, limit: int = 96, chat: bool = True,
    ) -> dict:  # fmt: skip
        """Every combination of exit layer, lookahead and threshold, simulated from one probe, with predicted speed.

        policy: constant, heuristic, dynamic or oracle. lookaheads: 1..20. thresholds: 0..1.
        """
        given = locals_of(locals())
        ahead, limits = _grid_of(given, site)
        study: Study = carry_out("probe", checked(probe_request, given)).result
        grid = simulate_grid(study.probe, policy, lookaheads=ahead, thresholds=limits)
        seconds = cost.grid_seconds(study.costs, grid, study.probe.kind == "early-exit")
        rows = []
        for r, row in enumerate(grid.rows):
            for i, threshold in enumerate(grid.thresholds):
                for j, lookahead in enumerate(grid.lookaheads):
                    drafted, accepted = int(grid.drafted[r, i, j]), int(grid.accepted[r, i, j])
                    rows.append(
                        {
                            "exit_layer": row or None, "threshold": threshold, "lookahead": lookahead,
                            "iterations": int(grid.iterations[r, i, j]), "drafted": drafted, "accepted": accepted,
                            "predicted_seconds": float(seconds[r, i, j]),
                            "predicted_speedup": float(grid.tokens * study.costs.plain_token() / seconds[r, i, j]),
                        }
                    )  # fmt: skip
        return {"tokens": grid.tokens, "cells": rows}

    for function in (decode, probe, sweep):
        gr.api(
            function,
            api_name=function.__name__,
            api_description=function.__doc__,
            concurrency_id=concurrency_id,
            concurrency_limit=LIMITS.runs_at_once,
        )


def _waits() -> Callable[[], bool]:
    """A function that says whether the caller of this endpoint is still there."""
    blocks, name = LocalContext.blocks.get(None), LocalContext.event_id.get(None)
    event = blocks._queue.event_ids_to_events.get(name) if blocks is not None and name else None
    if event is None:
        return lambda: True
    return lambda: event.alive and name in blocks._queue.event_ids_to_events


def _refusal(message: str) -> gr.Error:
    """For the caller alone: a refusal is no fault of ours, so the log has no traceback of it."""
    return gr.Error(message, print_exception=False)


def locals_of(found: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an endpoint, without what it closes over."""
    return {key: value for key, value in found.items() if not callable(value) and key != "site"}


def _grid_of(given: dict[str, Any], site) -> tuple[list[int], list[float]]:
    read = Reader(given)
    for name in ("lookaheads", "thresholds"):
        if given[name] is not None and not isinstance(given[name], list):
            raise _refusal(f"{name}: give a list of numbers")
        if len(given[name] or ()) > LIMITS.sweep_cells:
            raise _refusal(text("error.cells", limit=LIMITS.sweep_cells))
    try:
        read.choice("policy", ("constant", "heuristic", "dynamic", "oracle"), "dynamic")
        ahead = [Reader({"lookahead": k}).whole("lookahead", 1, MAX_LOOKAHEAD) for k in given["lookaheads"] or range(1, 9)]
        limits = [
            Reader({"threshold": x}).number("threshold", 0.0, 1.0) for x in given["thresholds"] or (0.0, 0.2, 0.4, 0.6, 0.8)
        ]
    except Refused as error:
        raise _refusal(str(error)) from None
    if len(ahead) * len(limits) > LIMITS.sweep_cells or None in ahead or None in limits:
        raise _refusal(text("error.cells", limit=LIMITS.sweep_cells))
    return ahead, limits


def _text(records: list[dict[str, Any]]) -> str:
    out = []
    for record in records:
        if record["kind"] == "iteration":
            out += [token["text"] for token in record["draft"][: record["accepted"]]]
            out += [record["ending"]["text"]] if record.get("ending") else []
        elif record["kind"] == "footer":
            out.append(record.get("tail", ""))
    return "".join(out)
