"""One server and one browser for all tests of the page. Without a Chromium they are skipped, and say so."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")  # the lightest first
CHROMIUM = os.environ.get("SPECVIZ_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)

# No name but this machine's is found; what is asked for is noted all the same (Visitor.outside).
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def app():
    """The real app with the shipped models; where they are absent, tiny random ones stand in for them.

    A random model stands in for SmolLM2, so that nothing is fetched.
    """
    import torch

    from specviz.models import zoo
    from specviz.ui import shelf as shelves
    from specviz.ui.page import build, launch
    from tests.tiny import tiny_model, tiny_pair

    torch.set_num_threads(1)
    shelves.COST_SECONDS = 0.5  # no test looks at how exact the costs are
    demo = build()
    shelf = demo.site.shelf
    shelf.room = 8
    if zoo.default_pair().name != "tiny":
        target, draft = tiny_pair("llama", likeness=0.97, eos_ids=())
        shelf.put("tiny-layerskip", target)
        shelf.put("tiny-draft", draft)
    shelf.put("smollm2", tiny_model("llama", eos_ids=()))
    _, url, _ = launch(
        demo, prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", server_port=free_port(), share=False
    )
    demo.url = url
    yield demo
    demo.close()


@pytest.fixture
def unhurried(monkeypatch):
    """Runs take their time, whatever the machine: seventy tokens need half a minute, so they can be interrupted."""
    from specviz.ui import work

    whole = work.decode

    def paced(*args, **more):
        for record in whole(*args, **more):
            yield record
            time.sleep(0.4)

    monkeypatch.setattr(work, "decode", paced)


@pytest.fixture(scope="session")
def browser():
    if not CHROMIUM:
        pytest.skip("no Chromium found: install one, or name it in SPECVIZ_CHROMIUM")
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


class Visitor:
    """A browser window that refuses the outside world and remembers every complaint."""

    def __init__(self, browser, url: str, **options):
        self.url = url
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **options})
        self.outside: list[str] = []
        self.complaints: list[str] = []
        self.forgiven: tuple[str, ...] = ()  # parts of complaints that a test expects
        self.context.on("request", self._note)
        self.page = self.new_page()

    def new_page(self):
        page = self.context.new_page()
        page.set_default_timeout(120_000)
        page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def _note(self, request):
        if urlsplit(request.url).hostname not in ("127.0.0.1", "localhost", None):
            self.outside.append(request.url)

    def open(self, query: str = ""):
        self.page.goto(self.url + query, wait_until="commit")
        self.page.wait_for_selector("html.sv-mounted", state="attached")
        return self.page

    def close(self):
        self.context.close()
        assert not self.outside, f"asked the outside world for {self.outside}"
        left = [text for text in self.complaints if not any(part in text for part in self.forgiven)]
        assert not left, f"errors in the console: {left}"


@pytest.fixture
def visit(app, browser):
    """visit(query, **options) -> page; checks at the end that nothing went outside and nothing complained."""
    visitors: list[Visitor] = []

    def start(query: str = "", **options):
        visitor = Visitor(browser, app.url, **options)
        visitors.append(visitor)
        page = visitor.open(query)
        page.visitor = visitor
        return page

    yield start
    for visitor in visitors:
        visitor.close()


SHOTS = Path(os.environ["SPECVIZ_SHOTS"]) if os.environ.get("SPECVIZ_SHOTS") else None
