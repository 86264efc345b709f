"""The page as a Gradio application: its component, its events, its server functions, how it is launched."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

# Before Gradio is imported: no usage statistics leave this machine.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import gradio as gr
from starlette.middleware import Middleware

from specviz.analysis.simulate import POLICIES
from specviz.trace import TraceError, parse_trace, records_of
from specviz.ui import boot, endpoints, serving, static, zerogpu
from specviz.ui.drawing import look_of
from specviz.ui.guard import Guard
from specviz.ui.hands import Hands
from specviz.ui.limits import LIMITS
from specviz.ui.perform import perform
from specviz.ui.player import player
from specviz.ui.requests import Reader, Refused, clean, decode_request, pair_of, probe_request, race_request
from specviz.ui.runs import Runs
from specviz.ui.said import said
from specviz.ui.shelf import Shelf
from specviz.ui.study import Study
from specviz.ui.texts import language, text

# Everything that uses a model waits in this one queue.
MODEL_QUEUE = "models"

# How often the event that drives a run comes up for air: often enough to notice a closed tab at once, seldom enough
# to cost the run nothing.
BREATH_SECONDS = 0.1


class Site:
    """The state of one running page: its runs and its models."""

    def __init__(self) -> None:
        self.runs = Runs(LIMITS)
        self.shelf = Shelf()
        self.hands = Hands(LIMITS.runs_at_once)
        self.readers: dict[str, Callable[[object, str], Any]] = {
            "decode": decode_request,
            "probe": probe_request,
            "race": race_request,
        }

    def functions(self) -> tuple[Callable[[object], dict[str, Any]], ...]:
        """What the page may call."""
        return (
            self.submit, self.pull, self.stop, self.upload, self.explore, self.layers, self.simulated, self.typed,
        )  # fmt: skip

    # --- answers at once -----------------------------------------------------------------------------------

    def submit(self, data: object) -> dict[str, Any]:
        """Check a request and give it a name under which its work can be started and read."""
        read = Reader(data, _lang(data))
        kind = read.choice("kind", self.readers)
        request = self.readers[kind](read.get("request"), read.lang)
        run = self.runs.submit(kind, request)
        if run is None:
            raise Refused(text("error.busy", read.lang))
        return {"run": run.id}

    def pull(self, data: object) -> dict[str, Any]:
        """The records of a run behind a cursor, and how the run stands."""
        read = Reader(data, _lang(data))
        run = self.runs.get(read.get("run"))
        if run is None:
            raise Refused(text("error.gone", read.lang))
        return run.answer(read.whole("cursor", 0, 10_000_000, 0), self.runs.before(run))

    def stop(self, data: object) -> dict[str, Any]:
        """End a run within one iteration."""
        run = self.runs.get(Reader(data).get("run"))
        if run is not None:
            run.stop()
            if run.state == "waiting" and self.runs.claim(run.id):
                run.state = "stopped"  # nobody has begun it, so nobody would notice
        return {}

    def upload(self, data: object) -> dict[str, Any]:
        """Check a file that a visitor opened; its records are then pulled like those of any run."""
        read = Reader(data, _lang(data))
        content = read.get("text")
        if not isinstance(content, str):
            raise Refused(text("error.request", read.lang))
        if len(content) > self.runs.limits.upload_bytes:
            raise Refused(text("error.file_size", read.lang, limit=self.runs.limits.upload_bytes // 1_000_000))
        try:
            trace = parse_trace(io.StringIO(clean(content)))
        except TraceError as error:
            raise Refused(text("error.file", read.lang, why=said(str(error), read.lang, ""))) from None
        if len(trace.iterations) > self.runs.limits.upload_records:
            raise Refused(text("error.file_records", read.lang, limit=self.runs.limits.upload_records))
        return {"run": self.runs.finished("upload", records_of(trace)).id, "finished": trace.finished}

    def explore(self, data: object) -> dict[str, Any]:
        """View 2: one policy against all others, from a probe."""
        study, read = self._study(data)
        policy = read.choice("policy", POLICIES, "dynamic")
        return study.lookahead(policy, *self._knobs(read, study), look_of(data))

    def layers(self, data: object) -> dict[str, Any]:
        """View 3: the exit layers, from a probe."""
        study, read = self._study(data)
        lookahead, threshold, exit_layer = self._knobs(read, study)
        answer = study.layers(lookahead, threshold, exit_layer, look_of(data), read.flag("wide", True))
        twin = self.runs.get(read.get("twin"))
        if twin is not None and isinstance(twin.result, Study):
            answer["compare"] = study.compare(twin.result, lookahead, threshold)
        return answer

    def simulated(self, data: object) -> dict[str, Any]:
        """The run that a policy would have made, for the player."""
        study, read = self._study(data)
        policy = read.choice("policy", POLICIES, "dynamic")
        return {"records": "[" + ",".join(study.trace_lines(policy, *self._knobs(read, study))) + "]"}

    def typed(self, data: object) -> dict[str, Any]:
        """A pair that a visitor typed, as the form needs it; refused where only models of the zoo are allowed."""
        read = Reader(data, _lang(data))
        return {"pair": boot.described(pair_of(read.pair()), self.shelf)}

    def _study(self, data: object) -> tuple[Study, Reader]:
        read = Reader(data, _lang(data))
        run = self.runs.get(read.get("run"))
        if run is None or not isinstance(run.result, Study):
            raise Refused(text("error.gone", read.lang))
        run.touched = time.monotonic()
        return run.result, read

    def _knobs(self, read: Reader, study: Study) -> tuple[int, float, int | None]:
        early = study.probe.kind == "early-exit"
        return (
            read.whole("lookahead", 1, study.probe.max_lookahead, 5),
            round(read.number("threshold", 0.0, 1.0, 0.4), 2),
            read.whole("exit_layer", 1, study.probe.layers - 1, 1) if early else None,
        )

    # --- the model queue -----------------------------------------------------------------------------------

    def work(self, event: gr.EventData) -> Iterator[None]:
        """Drive the run that the event names. Ends with the page that asked for it: Gradio closes this generator."""
        named = event._data if isinstance(event._data, dict) else {}
        run = self.runs.claim(named.get("run"))
        if run is None:
            return
        yield from self.hands.carry(perform(run, self.shelf), BREATH_SECONDS)


def _lang(data: object) -> str:
    return language(data.get("lang")) if isinstance(data, dict) else "en"


def _explained(method: Callable[[object], dict]) -> Callable[[object], dict]:
    """A server function that answers a refusal with its message, to be shown where the visitor is."""

    @wraps(method)
    def answer(data):
        try:
            return method(data)
        except Refused as error:
            return {"error": {"message": str(error), "field": error.field}}

    return answer


def build() -> gr.Blocks:
    """The page, ready to launch with ``launch``."""
    site = Site()
    if zerogpu.here():
        zerogpu.prepare(site.shelf, [(pair["target"], pair["draft"]) for pair in boot.pairs(site.shelf) if not pair["fetch_bytes"]])
    with gr.Blocks(title="specviz", analytics_enabled=False, fill_width=True) as page:
        component = player([_explained(method) for method in site.functions()])
        component.work(
            _event(site),
            None,
            None,
            concurrency_id=MODEL_QUEUE,
            concurrency_limit=LIMITS.runs_at_once,
            trigger_mode="multiple",
            show_progress="hidden",
            api_visibility="private",
        )
        endpoints.register(site, MODEL_QUEUE)
    page.site, page.component = site, component
    return page


def _event(site: Site):
    """Gradio looks at a function's signature for what to pass; a bound method would hide the annotation."""

    def work(event: gr.EventData):
        yield from site.work(event)

    return work


# Gradio keeps a copy of the page's configuration, about 40 kB, for each of the last 10,000 sessions. Nothing of ours is in
# there, and a session that is forgotten gets a new copy: what is at work or waiting needs one, and a few others.
SESSIONS_PER_PLACE = 4


def launch(page: gr.Blocks, **more: Any):
    """Launch with everything that the page needs; ``more`` goes to Gradio's launch."""
    serving.start_log()
    serving.end_on_sigterm(page.site.runs)
    # The page's own runs are counted by Runs, which says so in words; the rest is room for programs.
    page.queue(max_size=2 * LIMITS.waiting, default_concurrency_limit=1, api_open=False)
    guard = Middleware(
        Guard,
        most=2 * LIMITS.upload_bytes + 1_000_000,  # a file travels as a JSON text, where quotes take two bytes
        component=page.component._id,
        server_functions=frozenset(function.__name__ for function in page.site.functions()),
    )
    return page.launch(
        app_kwargs={"routes": static.routes(), "middleware": [guard]},
        head=boot.head(page.site.shelf),
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        show_error=True,  # to programs that ask for something wrong; the page has its own words
        mcp_server=False,
        enable_monitoring=False,
        allowed_paths=[],
        max_file_size=LIMITS.upload_bytes,
        state_session_capacity=SESSIONS_PER_PLACE * (LIMITS.waiting + LIMITS.runs_at_once),
        **more,
    )
