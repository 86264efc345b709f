"""Stops, closed tabs and SIGTERM: work ends within one iteration, nothing is left, and the process leaves in order."""

from __future__ import annotations

import signal
import time

import pytest

from specviz.ui.perform import summary
from specviz.ui.requests import decode_request
from specviz.ui.runs import Run
from tests.hosting.server import Server, wait_for

# The same app, with a target so slow that a run lasts until it is ended.
SLOW = """
import sys, torch
sys.path.insert(0, ".")
torch.set_num_threads(1)
from specviz.ui import page
from tests.tiny import tiny_model
demo = page.build()
demo.site.shelf.put("smollm2", tiny_model("llama", eos_ids=(), num_hidden_layers=60, hidden_size=512, intermediate_size=1024))
page.launch(demo)
"""
SLOW_RUN = {"pair": "smollm2", "method": "autoregressive", "prompt": "x", "limit": 400}


@pytest.fixture(scope="module")
def server():
    with Server(code=SLOW) as running:
        yield running


def runs(server: Server) -> list[str]:
    """The log's lines of runs."""
    return [line for line in server.log if " run decode " in line]


def last(server: Server, count: int) -> str:
    """The log's line of a run, once there are so many."""
    wait_for(lambda: len(runs(server)) >= count)
    return runs(server)[-1]


def begun(server: Server, request: dict):
    run = server.visitor().start("decode", request)
    run.wait(lambda answer: answer["state"] == "running" and run.records)
    return run


def after_stop(run) -> int:
    """Records that came after the stop was answered; the one in the making may come."""
    run.stop()
    run.pull()
    before = len(run.records)
    assert run.wait()["state"] == "stopped"
    return len(run.records) - before


def test_a_stop_ends_the_work_within_one_iteration(server):
    before = len(runs(server))
    run = begun(server, SLOW_RUN)
    assert after_stop(run) <= 1
    assert "state=stopped" in last(server, before + 1)


def test_a_closed_tab_ends_the_work(server):
    before = len(runs(server))
    run = begun(server, SLOW_RUN)
    made = len(run.records)
    run.leave()
    line = last(server, before + 1)
    tokens = int(line.split("tokens=")[1].split()[0])
    assert "state=stopped" in line and tokens < made + 60


def test_a_program_that_leaves_ends_its_work(server):
    from gradio_client import Client

    before = len(runs(server))
    client = Client(server.url, verbose=False)
    job = client.submit(**SLOW_RUN, api_name="/decode")
    wait_for(lambda: job.status().code.name == "PROCESSING")
    time.sleep(0.3)
    job.cancel()
    assert "state=stopped" in last(server, before + 1)
    client.close()


def test_sigterm_ends_a_run_at_its_iteration_and_the_process_in_order():
    with Server(code=SLOW) as server:
        begun(server, SLOW_RUN)
        began = time.monotonic()
        assert server.kill(signal.SIGTERM) == 0
        print(f"\nSIGTERM to exit: {time.monotonic() - began:.2f} s")
        assert any("state=stopped" in line for line in server.log)
        assert any("ended by SIGTERM: 1 of 1" in line for line in server.log)
        assert not any("Traceback" in line for line in server.log)


def test_the_log_says_one_line_a_run_and_no_prompt(server):
    before = len(runs(server))
    request = {"pair": "tiny", "method": "constant", "lookahead": 3, "prompt": "def secret_word(a):", "limit": 8}
    server.visitor().start("decode", request).wait()
    line = last(server, before + 1)
    assert len(runs(server)) == before + 1
    assert " INFO run decode state=done method=constant tokens=8 seconds=" in line
    assert "acceptance=0." in line or "acceptance=1." in line
    assert line.endswith("check=identical")
    assert "secret_word" not in "\n".join(server.log)


def test_prompts_are_in_the_log_where_they_are_asked_for(monkeypatch):
    run = Run("decode", decode_request({"pair": "tiny", "method": "dynamic", "prompt": "def secret_word(a):"}), state="done")
    assert "secret_word" not in summary(run, 1.0)
    monkeypatch.setenv("SPECVIZ_LOG_PROMPTS", "1")
    assert summary(run, 1.0).endswith("prompt='def secret_word(a):'")


@pytest.mark.slow
def test_a_hundred_stops_and_closed_tabs_leave_nothing(server):
    memory, late = [], 0
    for number in range(100):
        before = len(runs(server))
        run = begun(server, SLOW_RUN)
        if number % 2:
            late = max(late, after_stop(run))
        run.leave()
        assert "state=stopped" in last(server, before + 1)
        run.visitor.close()
        memory.append(server.memory())
    print(f"\n100 stops and closed tabs: at most {late} records after a stop; memory {memory[9] / 1e6:.0f} MB after 10, {memory[-1] / 1e6:.0f} after 100")
    assert late <= 1
    assert memory[-1] < 1.1 * memory[9]
