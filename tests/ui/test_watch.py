"""The Watch view in a real browser: run, stop, the verdict, errors in their place, hostile text."""

from __future__ import annotations

import re

import pytest

from specviz.trace import records_of, to_json
from tests.ui import handmade

RUN, STOP = "[data-do=run]", "[data-do=stop]"
DONE = re.compile(r"Finished: \d+ tokens")


def run(page, timeout: int = 60_000):
    from playwright.sync_api import expect

    page.click(RUN)
    expect(page.locator(".sv-status")).to_have_text(DONE, timeout=timeout)


def metric(page, name: str) -> str:
    return page.inner_text(f"[data-metric={name}] .sv-metric-value")


def test_a_run_shows_every_fate_its_numbers_and_the_verdict(visit):
    page = visit("?pair=tiny&method=dynamic&limit=48&prompt=Once upon a time")
    run(page)
    for fate in ("accepted", "refused", "correction", "bonus"):
        assert page.locator(f".sv-tokens .sv-{fate}").count() > 0, fate
    refused = page.locator(".sv-tokens .sv-refused").first
    assert "line-through" in refused.evaluate("node => getComputedStyle(node).textDecorationLine")
    assert page.get_attribute(".sv-verdict", "data-kind") == "identical"
    assert "48 of 48" in page.inner_text(".sv-verdict")
    note = page.inner_text("[data-metric=acceptance] .sv-metric-note")
    accepted, drafted = map(int, re.findall(r"\d+", note))
    assert 0 < accepted < drafted
    assert page.locator(".sv-tokens .sv-accepted:visible").count() == accepted
    assert float(metric(page, "length")) > 1


def test_only_the_parameters_that_apply_are_shown(visit):
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
        shown = {
            name for name in ("lookahead", "threshold", "exit_layer", "ngram") if page.is_visible(f"#sv-field-{name}")
        }
        assert shown == parameters, method


def test_methods_of_a_draft_model_are_not_offered_without_one(visit):
    page = visit("?pair=tiny-exit")
    offered = page.eval_on_selector_all("#sv-field-method option", "nodes => nodes.map(node => node.value)")
    assert "dynamic" not in offered
    assert {"early-exit", "prompt-lookup", "autoregressive"} <= set(offered)


def test_stop_ends_the_work_on_the_server(visit, app):
    page = visit("?pair=tiny&method=autoregressive&limit=256&prompt=Once")
    page.click(RUN)
    page.wait_for_selector(".sv-tokens .sv-bonus")
    page.click(STOP)
    page.wait_for_selector(RUN)
    latest = list(app.site.runs._runs.values())[-1]
    assert latest.state == "stopped"
    made = len(latest.lines)
    page.wait_for_timeout(300)
    assert len(latest.lines) == made < 250


def test_a_mistake_is_shown_at_its_field(visit):
    page = visit("?pair=tiny&prompt=")
    page.fill("#sv-field-prompt", "   ")
    page.click(RUN)
    page.wait_for_selector("#sv-error-prompt:visible")
    assert "empty" in page.inner_text("#sv-error-prompt")
    assert page.evaluate("document.activeElement.id") == "sv-field-prompt"
    page.fill("#sv-field-prompt", "Once " * 400)
    page.click(RUN)
    page.wait_for_selector("#sv-error-prompt:visible")
    assert "shorten" in page.inner_text("#sv-error-prompt").lower()


@pytest.mark.parametrize("text", ["\n".join(handmade.HOSTILE)], ids=["all"])
def test_hostile_prompts_are_text(visit, text):
    page = visit("?pair=tiny&limit=16")
    page.fill("#sv-field-prompt", text)
    run(page)
    assert page.evaluate("window.hacked") is None
    prompt = page.text_content(".sv-prompt")
    assert "${7*7}" in prompt and "49" not in prompt
    assert "<img src=x onerror=" in prompt
    assert "\u202e" not in prompt and "\u2066" not in prompt
    assert page.locator(".sv-strip img, .sv-strip script").count() == 0


def test_hostile_tokens_are_text(visit):
    page = visit()
    lines = "\n".join(to_json(record) for record in records_of(handmade.trace(handmade.HOSTILE, 12)))
    page.evaluate("text => window.specviz.app.openText(text)", lines)
    page.keyboard.press("Escape")
    page.evaluate("window.specviz.app.view('watch').stage.player.seek(1e9)")
    page.wait_for_timeout(700)
    assert page.evaluate("window.hacked") is None
    body = page.text_content(".sv-tokens")
    assert "${7*7}" in body and "{{constructor" in body and "<script>" in body
    assert page.locator(".sv-tokens img, .sv-tokens script, .sv-plot img").count() == 0
    page.hover(".sv-tokens .sv-tok:visible >> nth=0")
    assert page.locator(".sv-token-card img").count() == 0


def test_a_reload_in_mid_run_ends_the_work(visit, app):
    page = visit("?pair=tiny&method=autoregressive&limit=256&prompt=Twice")
    page.click(RUN)
    page.wait_for_selector(".sv-tokens .sv-bonus")
    latest = list(app.site.runs._runs.values())[-1]
    page.reload()
    page.wait_for_selector("html.sv-mounted")
    page.wait_for_timeout(1000)
    assert latest.state == "stopped"
