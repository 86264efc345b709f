"""Several visitors, languages, light and dark, narrow screens, keyboard and screen reader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ui import handmade
from tests.ui.helpers import DONE, IDENTICAL, PATIENCE, RUN, STOP, lines_of, open_text, run

VIEWS = ("watch", "explore", "layers", "race", "published", "walk")


def axe_script() -> Path | None:
    """axe-core, where it is installed for the tests: `npm install axe-core`, or a file named in SPECVIZ_AXE."""
    places = [os.environ.get("SPECVIZ_AXE"), "node_modules/axe-core/axe.min.js", "tests/ui/node_modules/axe-core/axe.min.js"]
    return next((Path(place) for place in places if place and Path(place).is_file()), None)


def test_two_visitors_at_once_see_their_own_runs_only(visit, unhurried):
    from playwright.sync_api import expect

    slow = visit("?pair=smollm2&method=autoregressive&limit=512")
    fast = visit("?pair=tiny&limit=8")
    slow.fill("#sv-field-prompt", "mine is 1234567")
    fast.fill("#sv-field-prompt", "def other_visitor():")
    slow.click(RUN)
    slow.wait_for_selector(".sv-tokens .sv-own")
    fast.click(RUN)
    expect(fast.locator(".sv-controls .sv-status")).to_contain_text("Waiting: 1 before you", timeout=PATIENCE)
    slow.click(STOP)
    expect(fast.locator(".sv-controls .sv-status")).to_have_text(DONE, timeout=PATIENCE)
    assert "1234567" not in fast.text_content(".sv-strip")
    assert "other_visitor" in fast.text_content(".sv-strip")
    assert "other_visitor" not in slow.text_content(".sv-strip")


def test_japanese_is_complete_and_dark_is_dark(visit):
    page = visit("?pair=tiny&limit=16", locale="ja-JP", color_scheme="dark")
    assert page.evaluate("document.documentElement.lang") == "ja"
    assert page.evaluate("document.documentElement.dataset.svTheme") == "dark"
    run(page)
    for view in VIEWS:
        page.click(f"#sv-tab-{view}")
        texts = page.eval_on_selector_all("[data-t]", "nodes => nodes.map(node => [node.dataset.t, node.textContent])")
        assert not [key for key, text in texts if text == key], "a key in place of its text"
    page.click("#sv-tab-watch")
    assert "ターゲット単独と同一" in page.inner_text(".sv-verdict")
    page.fill("#sv-field-prompt", "語" * 3000)  # fits the form, but not the model: the core itself says so
    page.click(RUN)
    page.wait_for_function("document.querySelector('#sv-error-prompt').textContent.includes('短くしてください')")
    page.click("[data-language=en]")
    assert "Identical" in page.inner_text(".sv-verdict")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.click("[data-do=theme]")
    assert page.evaluate(ground) != dark


# Parts that reach beyond the screen, except inside what scrolls by itself.
BEYOND = """width => [...document.querySelectorAll("#sv-main *")]
    .filter((node) => node.offsetParent && !node.closest(".sv-table-scroll, .sv-hidden, .sv-plot"))
    .filter((node) => node.getBoundingClientRect().right > width + 1)
    .map((node) => node.className)"""


@pytest.mark.parametrize("width", [390, 1920])
def test_nothing_is_wider_than_the_screen(visit, width):
    page = visit("?pair=tiny&lang=ja&limit=16", viewport={"width": width, "height": 844})
    open_text(page, lines_of(handmade.trace((*handmade.WORDS, "averyveryverylongtokenwithoutanyplacetobreakit" * 3), 30)))
    for view in VIEWS:
        page.click(f"#sv-tab-{view}")
        if view == "race":
            page.click("#sv-panel-race [data-do=race]")
            page.wait_for_selector(".sv-race .sv-plot[data-drawn]", timeout=PATIENCE)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{view} is {wide} pixels wide"
        assert page.evaluate(BEYOND, width) == [], view


def test_keyboard_alone_runs_and_reads(visit):
    page = visit("?pair=tiny&limit=24")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "sv-skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "sv-main"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "sv-field-prompt":
            break
    page.keyboard.press("Control+a")
    page.keyboard.type("def add(a, b):")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(IDENTICAL, timeout=PATIENCE)
    page.focus("#sv-tab-watch")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#sv-tab-explore", "aria-selected") == "true"
    page.keyboard.press("End")
    assert page.is_visible("#sv-panel-walk")


def test_axe_finds_nothing_serious(visit):
    script = axe_script()
    if script is None:
        pytest.skip("axe-core is not installed: npm install axe-core, or name its file in SPECVIZ_AXE")
    for scheme in ("light", "dark"):
        page = visit("?pair=tiny&limit=16", color_scheme=scheme)
        open_text(page, lines_of(handmade.trace(iterations=8)))
        page.add_script_tag(path=str(script))
        for view in VIEWS:
            page.click(f"#sv-tab-{view}")
            if view in ("explore", "layers"):
                page.click(f"#sv-panel-{view} [data-do=probe]")
                page.wait_for_selector(f"#sv-panel-{view} > div[data-answers]", timeout=PATIENCE)
            found = page.evaluate("axe.run('#sv-app').then(r => r.violations.map(v => [v.impact, v.id, v.nodes.slice(0, 3).map(n => n.html)]))")
            assert not [item for item in found if item[0] in ("serious", "critical")], (scheme, view)
