"""The Watch view in a real browser: run, stop, the verdict, errors in their place, hostile text."""

from __future__ import annotations

import re

from tests.ui import handmade
from tests.ui.helpers import PATIENCE, RUN, STOP, figures_drawn, lines_of, metric, open_text, run


def test_a_run_shows_every_fate_its_numbers_and_the_verdict(visit):
    page = visit("?pair=tiny&method=dynamic&limit=96")
    run(page)
    for fate in ("accepted", "refused", "correction", "bonus"):
        assert page.locator(f".sv-tokens .sv-{fate}").count() > 0, fate
    refused = page.locator(".sv-tokens .sv-refused").first
    assert "line-through" in refused.evaluate("node => getComputedStyle(node).textDecorationLine")
    assert page.get_attribute(".sv-verdict", "data-kind") == "identical"
    made, plain = map(int, re.search(r"(\d+) of (\d+) tokens", page.inner_text(".sv-verdict")).groups())
    assert made == plain > 0
    accepted, drafted = map(int, re.findall(r"\d+", page.inner_text("[data-metric=acceptance] .sv-metric-note")))
    assert 0 < accepted < drafted
    assert page.locator(".sv-tokens .sv-accepted:visible").count() == accepted
    assert float(metric(page, "length")) > 1
    figures_drawn(page)
    own = page.locator(".sv-tokens .sv-group").count()
    page.wait_for_function(f"document.querySelector('.sv-figures').dataset.iterations === '{own}'", timeout=PATIENCE)


def test_only_what_applies_is_shown_and_a_mistake_stands_at_its_field(visit):
    page = visit("?pair=tiny")
    wanted = {
        "autoregressive": set(),
        "constant": {"lookahead"},
        "dynamic": {"lookahead", "threshold"},
        "prompt-lookup": {"lookahead", "ngram"},
        "early-exit": {"exit_layer", "lookahead"},
    }
    for method, parameters in wanted.items():
        page.select_option("#sv-field-method", method)
        names = ("lookahead", "threshold", "exit_layer", "ngram")
        assert {name for name in names if page.is_visible(f"#sv-field-{name}")} == parameters, method
    page.select_option("#sv-field-pair", "tiny-exit")
    offered = page.eval_on_selector_all("#sv-field-method option", "nodes => nodes.map(node => node.value)")
    assert "dynamic" not in offered
    assert {"early-exit", "prompt-lookup", "autoregressive"} <= set(offered)

    page.fill("#sv-field-prompt", "   ")
    page.click(RUN)
    page.wait_for_selector("#sv-error-prompt:visible")
    assert "empty" in page.inner_text("#sv-error-prompt")
    assert page.evaluate("document.activeElement.id") == "sv-field-prompt"
    page.fill("#sv-field-prompt", "word " * 1500)  # fits the form, but not the model
    page.click(RUN)
    page.wait_for_function("/shorten/i.test(document.querySelector('#sv-error-prompt').textContent)")


def test_stop_and_reload_end_the_work_on_the_server(visit, app, unhurried):
    page = visit("?pair=smollm2&method=autoregressive&limit=512&prompt=Once")

    def begin():
        page.click(RUN)
        page.wait_for_selector(".sv-tokens .sv-own")
        return list(app.site.runs._runs.values())[-1]

    first = begin()
    page.click(STOP)
    page.wait_for_selector(RUN)
    assert first.state == "stopped"
    made = len(first.lines)
    second = begin()
    # Gradio's own client complains when a page goes away under an open stream.
    page.visitor.forgiven = ("AbortError", "Connection errored out")
    assert len(first.lines) == made < 513
    page.reload(wait_until="commit")
    page.wait_for_selector("html.sv-mounted", state="attached")
    for _ in range(600):
        if second.ended:
            break
        page.wait_for_timeout(100)
    assert second.state == "stopped"
    assert len(second.lines) < 513


def test_hostile_text_is_shown_and_never_obeyed(visit):
    page = visit("?pair=tiny&limit=16")
    page.fill("#sv-field-prompt", "\n".join(handmade.HOSTILE))
    run(page)
    prompt = page.text_content(".sv-prompt")
    assert "${7*7}" in prompt and "49" not in prompt
    assert "<img src=x onerror=" in prompt
    assert "\u202e" not in prompt and "\u2066" not in prompt
    assert page.locator(".sv-strip img, .sv-strip script").count() == 0

    open_text(page, lines_of(handmade.trace((*handmade.HOSTILE, "x" * 1_000_000), 12)))
    figures_drawn(page)
    body = page.text_content(".sv-tokens")
    assert "${7*7}" in body and "{{constructor" in body and "<script>" in body
    assert len(body) < 60_000
    page.hover(".sv-tokens .sv-tok:visible >> nth=0")
    page.hover(".sv-figures .sv-plot >> nth=2")
    for summary in page.locator(".sv-figures .sv-details > summary").all():
        summary.click()
    page.wait_for_timeout(500)
    assert page.evaluate("window.hacked") is None
    assert page.locator(".sv-app img, .sv-tokens script, .sv-plot a").count() == 0
