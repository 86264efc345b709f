"""What several browser tests do."""

from __future__ import annotations

import re

RUN, STOP = "[data-do=run]", "[data-do=stop]"
IDENTICAL = ".sv-verdict[data-kind=identical]:not([data-recorded])"  # of a run made here, not of the one that the page opens with
DONE = re.compile(r"Finished: \d+ tokens|終わりました：\d+")
PATIENCE = 120_000  # milliseconds: how long a loaded machine may take; nothing is asserted about time


def run(page) -> None:
    """Press run and wait for the verdict."""
    from playwright.sync_api import expect

    page.click(RUN)
    expect(page.locator(".sv-controls .sv-status")).to_have_text(DONE, timeout=PATIENCE)


def metric(page, name: str) -> str:
    return page.inner_text(f"[data-metric={name}] .sv-metric-value")


def open_text(page, text: str) -> None:
    """Put the text of a trace on the stage, at its end."""
    page.evaluate("text => window.specviz.app.openText(text)", text)
    page.evaluate("(() => { const p = window.specviz.app.view('watch').stage.player; p.pause(); p.seek(1e9); })()")


def lines_of(trace) -> str:
    from specviz.trace import records_of, to_json

    return "\n".join(to_json(record) for record in records_of(trace)) + "\n"


def figures_drawn(page) -> None:
    page.wait_for_selector(".sv-figures[data-iterations]", state="attached")
    page.wait_for_function("document.querySelectorAll('.sv-figures .sv-plot[data-drawn]').length === 4")
