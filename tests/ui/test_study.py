"""Figures of the studies: in the language and the look that the page asked for, and as wide as it has room."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from specviz.analysis.lens import LensTable
from specviz.figures.theme import Look
from specviz.ui.study import Study
from tests.figures import runs

JAPANESE = re.compile(r"[぀-ヿ一-鿿]")


def study(early: bool = True) -> Study:
    probe = runs.probe(exit_layers=early)
    ids = (*probe.prompt_ids, *probe.output_ids)
    says = np.tile(np.array(ids, np.int32), (probe.layers, 1))
    lens = LensTable("made-up", ids, ("a",) * len(ids), says, np.full(says.shape, 0.5, np.float32),
                     dict.fromkeys(ids, "x"), prompt=len(probe.prompt_ids))  # fmt: skip
    return Study(probe, runs.costs(), lens if early else None)


def figures(lang: str, dark: bool = False, wide: bool = True) -> dict[str, dict]:
    look = Look(dark=dark, lang=lang)
    early, other = study(), study(early=False)
    answers = {**early.layers(6, 0.4, 4, look, wide)["figures"], **other.lookahead("dynamic", 8, 0.4, None, look)["figures"]}
    return {name: json.loads(text) for name, text in answers.items()}


def words(figure: dict) -> str:
    meta = figure["layout"]["meta"]
    return " ".join([meta["title"], meta["learn"], *map(str, meta["columns"])])


@pytest.mark.parametrize("lang", ["en", "ja"])
def test_every_figure_speaks_the_language_of_the_page(lang):
    drawn = figures(lang)
    assert len(drawn) == 7
    for name, figure in drawn.items():
        assert bool(JAPANESE.search(words(figure))) == (lang == "ja"), name


def test_the_lens_writes_words_where_there_is_room_and_begins_with_the_output():
    wide, narrow = (figures("en", wide=room)["lens"]["data"] for room in (True, False))
    assert "text" in wide[0] and "text" not in narrow[0]
    for grid in (wide[0], narrow[0]):  # behind the last token of the prompt stands the first of the output
        assert grid["hovertext"][0][0].startswith("position 3,")


def test_dark_figures_have_the_dark_colours():
    assert json.dumps(figures("en", dark=True)) != json.dumps(figures("en"))
    settled = [part for part in figures("en", dark=True)["lens"]["data"] if part.get("name") == "settled from here up"]
    assert settled[0]["line"]["color"] == Look(dark=True).colour("ink")
