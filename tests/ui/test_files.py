"""Take it away and bring it back: trace, tables, figures, links; a file that is not a run."""

from __future__ import annotations

import json

import pytest

from specviz.trace import read_trace
from tests.ui import handmade
from tests.ui.helpers import figures_drawn, lines_of, open_text


def save(page, do: str):
    page.click(".sv-files summary")
    with page.expect_download() as waiting:
        page.click(f".sv-files [data-do={do}]")
    return waiting.value.path()


def test_a_run_goes_out_and_comes_back_unchanged(visit, tmp_path):
    page = visit()
    trace = handmade.trace((*handmade.HOSTILE, *handmade.WORDS), 10)
    file = tmp_path / "run.jsonl"
    file.write_text(lines_of(trace), encoding="utf-8")
    page.set_input_files(".sv-files input[type=file]", file)
    page.wait_for_function("document.querySelector('.sv-badge').textContent === 'Opened file'")
    assert read_trace(save(page, "trace")) == trace
    assert len(save(page, "iterations").read_text(encoding="utf-8-sig").splitlines()) == 11
    tokens = save(page, "tokens").read_text(encoding="utf-8-sig")
    assert "refused" in tokens and "correction" in tokens

    figures_drawn(page)
    for kind, begins in (("png", b"\x89PNG"), ("svg", b"<svg"), ("json", b"{"), ("html", b"<!doctype html>")):
        page.click(".sv-figures .sv-menu > summary >> nth=0")
        with page.expect_download() as waiting:
            page.click(f".sv-figures .sv-menu >> nth=0 >> text={kind.upper()}")
        assert waiting.value.path().read_bytes()[:40].lstrip().startswith(begins), kind


def test_a_file_that_is_no_run_is_refused_in_words(visit, tmp_path):
    page = visit()
    for content, word in (("{broken\n", "line 1"), ('{"kind": "iteration"}\n', "line 1"), ("", "no records")):
        file = tmp_path / "bad.jsonl"
        file.write_text(content, encoding="utf-8")
        page.set_input_files(".sv-files input[type=file]", file)
        page.wait_for_function("word => document.querySelector('.sv-stage .sv-error').textContent.includes(word)", arg=word)
    cut = lines_of(handmade.trace(iterations=4)).rsplit("\n", 2)[0] + '\n{"kind": "foo'
    file.write_text(cut, encoding="utf-8")
    page.set_input_files(".sv-files input[type=file]", file)
    page.wait_for_selector(".sv-verdict[data-kind=unfinished]")


def test_a_link_brings_another_visitor_to_the_same_place(visit):
    page = visit("?pair=tiny")
    page.select_option("#sv-field-method", "early-exit-dynamic")
    page.fill("#sv-field-prompt", "a & b = ${c} #\n日本")
    page.locator("#sv-field-exit_layer").fill("3")
    page.locator("#sv-field-threshold").fill("0.65")
    page.click("#sv-tab-race")
    page.click("[data-language=ja]")
    link = page.evaluate("window.specviz.app.link()")
    other = visit(link.removeprefix("/") + "&hide=published,temperature")
    assert other.evaluate("document.documentElement.lang") == "ja"
    assert other.is_visible("#sv-panel-race")
    assert not other.is_visible("#sv-tab-published")
    other.click("#sv-tab-watch")
    assert other.input_value("#sv-field-prompt") == "a & b = ${c} #\n日本"
    assert other.input_value("#sv-field-method") == "early-exit-dynamic"
    assert (other.input_value("#sv-field-exit_layer"), other.input_value("#sv-field-threshold")) == ("3", "0.65")
    other.locator(".sv-controls > .sv-details > summary").click()
    assert other.is_visible("#sv-field-limit") and not other.is_visible("#sv-field-temperature")


@pytest.mark.parametrize("query", ["?lookahead=abc&threshold=&method=<b>&pair=../x&view=zzz&lang=xx&trace=../../etc&limit=1e999"])
def test_a_broken_link_opens_all_the_same(visit, query):
    page = visit(query)
    assert page.is_visible("#sv-panel-watch")
    assert page.input_value("#sv-field-pair") != "../x"
    assert json.loads(page.evaluate("JSON.stringify(window.specviz.app.link())")).startswith("/")
    open_text(page, lines_of(handmade.trace(iterations=3)))
