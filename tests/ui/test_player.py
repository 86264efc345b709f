"""The player on a recorded run: play, pause, step, scrub, keys, details, and the link between strip and figures."""

from __future__ import annotations

from tests.ui import handmade
from tests.ui.helpers import figures_drawn, lines_of, metric, open_text

TRACE = handmade.trace(iterations=20)
POSITION = "window.specviz.app.view('watch').stage.player.tick"


def test_play_step_scrub_and_keys_agree_on_where_the_run_stands(visit):
    page = visit()
    open_text(page, lines_of(TRACE))
    ticks = sum(iteration.drafted + 1 for iteration in TRACE.iterations)
    assert page.evaluate(POSITION) == ticks
    assert page.inner_text("[data-metric=acceptance] .sv-metric-note") == (
        f"{TRACE.footer.accepted} of {TRACE.footer.drafted} guesses"
    )

    page.click("[data-do=start]")
    assert page.evaluate(POSITION) == 0
    assert metric(page, "acceptance") == "–"
    page.click("[data-do=token_on]")
    assert page.locator(".sv-tokens .sv-pending:visible").count() == 1
    page.click("[data-do=iteration_on]")
    first = TRACE.iterations[0]
    assert page.evaluate(POSITION) == first.drafted + 1
    assert page.locator(".sv-tokens .sv-tok:visible").count() == first.drafted + 1
    page.click("[data-do=iteration_back]")
    assert page.locator(".sv-tokens .sv-tok:visible").count() == 0

    page.focus("[data-do=start]")
    page.keyboard.press("l")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(POSITION) == first.drafted + 2
    page.keyboard.press("Shift+ArrowLeft")
    assert page.evaluate(POSITION) == first.drafted + 1
    page.keyboard.press("End")
    assert page.evaluate(POSITION) == ticks
    page.keyboard.press("Home")
    page.keyboard.press("k")
    page.wait_for_function(f"{POSITION} > 2")
    page.keyboard.press("k")
    stood = page.evaluate(POSITION)
    page.wait_for_timeout(300)
    assert page.evaluate(POSITION) == stood
    page.locator(".sv-scrub").fill(str(ticks - 1))
    assert page.evaluate(POSITION) == ticks - 1
    page.select_option(".sv-speed select", "0.01")
    assert page.evaluate("window.specviz.app.view('watch').stage.player.speed") == 0.01


def test_a_token_tells_all_about_itself_and_lights_its_iteration(visit):
    page = visit()
    open_text(page, lines_of(TRACE))
    figures_drawn(page)
    page.focus(".sv-tokens")
    page.keyboard.press("Home")
    card = page.inner_text(".sv-token-card")
    first = TRACE.iterations[0].draft[0]
    assert f"{first.confidence:.0%}".replace("%", "\u202f%") in card
    assert "Iteration 1" in card and "drafting stopped" in card
    assert page.locator(".sv-token-card .sv-alternatives dt").count() >= 2
    assert "sv-lit" in page.get_attribute(".sv-group >> nth=0", "class")
    page.wait_for_function(
        "[...document.querySelectorAll('.sv-figures .sv-plot')].every(p => p.layout.shapes?.length === 1)"
    )
    # And back: pointing at a bar lights the group in the strip.
    page.evaluate(
        "window.specviz.app.view('watch').figures.figures.acceptance.area.emit('plotly_hover', {points: [{customdata: 3}]})"
    )
    assert "sv-lit" in page.get_attribute(".sv-group >> nth=3", "class")
    page.keyboard.press("End")
    assert page.get_attribute(".sv-tokens", "aria-activedescendant").startswith("sv-token-19-")
