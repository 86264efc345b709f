"""The other views: sliders that answer from a probe, exit layers, a race, published numbers, the guided walk."""

from __future__ import annotations

import re

from tests.ui.helpers import IDENTICAL, PATIENCE, figures_drawn

SMALL = "?pair=tiny&limit=32"


def show(page, view: str) -> str:
    page.click(f"#sv-tab-{view}")
    return f"#sv-panel-{view}"


def answers(panel: str, more_than: int) -> str:
    return f"Number(document.querySelector('{panel} > div').dataset.answers ?? 0) > {more_than}"


def slide(page, selector: str, value: float) -> None:
    page.locator(selector).fill(str(value))


def test_sliders_answer_from_one_probe_without_a_model(visit, app):
    page = visit(SMALL)
    panel = show(page, "explore")
    page.click(f"{panel} [data-do=probe]")
    page.wait_for_function(answers(panel, 0), timeout=PATIENCE)
    before = len(app.site.runs._runs)
    page.click(f"{panel} [data-policy=constant]")
    page.wait_for_function(answers(panel, 1))
    slide(page, "#sv-field-explore-lookahead", 3)
    page.wait_for_function(answers(panel, 2))
    drafted = page.inner_text(f"{panel} .sv-metric-note >> nth=0")
    slide(page, "#sv-field-explore-lookahead", 12)
    page.wait_for_function(f"drafted => document.querySelector('{panel} .sv-metric-note').innerText !== drafted", arg=drafted)
    page.click(f"{panel} [data-policy=oracle]")
    page.wait_for_function(f"document.querySelector('{panel} .sv-metric-value').textContent.startsWith('100')")
    assert len(app.site.runs._runs) == before
    page.wait_for_function(f"document.querySelectorAll('{panel} .sv-plot[data-drawn]').length === 3")
    page.click(f"{panel} .sv-study-controls .sv-chip >> nth=0")
    page.wait_for_selector("#sv-panel-watch:visible")
    assert page.inner_text(".sv-badge") == "Simulated, not run"


def test_exit_layers_lens_sweet_spot_and_run_at_this_layer(visit):
    page = visit(SMALL)
    panel = show(page, "layers")
    # "Try this" measures first where nothing is measured yet.
    page.click(f"{panel} .sv-try >> nth=0")
    page.wait_for_function(answers(panel, 1), timeout=PATIENCE)
    assert page.input_value("#sv-field-layers-exit_layer") == "1"
    page.wait_for_function(f"document.querySelectorAll('{panel} .sv-plot[data-drawn]').length === 4")
    assert "Best exit" in page.inner_text(f"{panel} .sv-study-controls")
    slide(page, "#sv-field-layers-exit_layer", 2)
    page.wait_for_function(answers(panel, 2))
    page.locator(f"{panel} .sv-figure .sv-details > summary >> nth=1").click()
    assert page.locator(f"{panel} .sv-table tbody tr:visible").count() > 2
    page.click(f"{panel} .sv-study-controls .sv-chip >> nth=0")
    page.wait_for_selector(IDENTICAL, timeout=PATIENCE)
    assert "exit layer\u00a02" in page.inner_text(".sv-run-title")


def test_race_published_and_walk(visit):
    page = visit(SMALL)
    panel = show(page, "walk")
    page.click(f"{panel} .sv-walk-list li:nth-child(6) button")
    numbers = page.inner_text(f"{panel} .sv-formulas")
    trace = "window.specviz.app.view('watch').stage.trace.totals.at(-1)"
    drafted, accepted = page.evaluate(f"[{trace}.drafted, {trace}.accepted]")
    assert f"{accepted} ÷ {drafted}" in numbers
    assert "undefined" not in page.inner_text(panel)
    for _ in range(2):
        page.click("[data-do=walk-next]")
    assert page.is_disabled("[data-do=walk-next]")

    panel = show(page, "race")
    page.click(f"{panel} [data-do=race]")
    page.wait_for_selector(f"{panel} .sv-plot[data-drawn]", timeout=PATIENCE)
    lanes = page.locator(".sv-lane").count()
    assert lanes >= 4
    assert re.match(rf"All {lanes} methods wrote exactly the same text|\d+ of {lanes}", page.inner_text(".sv-race > p"))
    texts = page.eval_on_selector_all(".sv-lane-text", "nodes => nodes.map(node => node.textContent)")
    assert len(set(texts)) == 1

    panel = show(page, "published")
    own = page.locator(f"{panel} section >> nth=1").locator("tbody tr")
    assert own.count() == lanes
    text = page.inner_text(panel)
    assert own.locator("td:nth-child(4)", has_text="×").count() == lanes - 1
    assert "RTX 4090" in text and "A100" in text
    assert "facebook/opt-6.7b" in text and "2.71" in text and "0.995" in text


def test_the_page_opens_on_a_recorded_run_that_moves(visit):
    page = visit()
    page.wait_for_function("window.specviz.app.view('watch').stage.player.tick > 3")
    assert page.inner_text(".sv-badge") == "Recorded run"
    assert "Iteration" in page.inner_text(".sv-now")
    figures_drawn(page)
