import itertools

import pandas as pd
import plotly.graph_objects as go
import pytest

from specviz.figures import theme, words
from specviz.figures.text import token, visible
from tests.figures.colours import SIGHT, contrast, distance


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("group", theme.TOGETHER, ids="-".join)
def test_colours_of_one_picture_are_told_apart_with_every_kind_of_sight(group, sight, dark):
    look = theme.Look(dark)
    near = {
        (one, other): round(distance(look.colour(one), look.colour(other), sight), 1)
        for one, other in itertools.combinations(group, 2)
    }
    assert not {pair: far for pair, far in near.items() if far < 8}


@pytest.mark.parametrize("group", theme.TOGETHER, ids="-".join)
def test_no_meaning_rests_on_colour_alone(group):
    for name in ("symbol", "glyph"):
        marks = [getattr(theme.MEANINGS[meaning], name) for meaning in group]
        assert len(set(marks)) == len(marks), name


def test_outcomes_and_workers_have_patterns_of_their_own():
    for group in (("accepted", "refused", "correction", "bonus", "pending"), ("draft", "target", "other")):
        patterns = [theme.MEANINGS[meaning].pattern for meaning in group]
        assert len(set(patterns)) == len(patterns)


@pytest.mark.parametrize("dark", [False, True])
def test_marks_stand_out_from_the_ground_and_text_is_readable(dark):
    look = theme.Look(dark)
    ground = look.colour("surface")
    for meaning in theme.MEANINGS:
        if meaning != "other":  # the rest of the time: a quiet filler with a pattern and a label
            assert contrast(look.colour(meaning), ground) >= 3, meaning
        assert contrast(look.colour("ink"), look.tint(meaning)) >= 7, meaning
    assert contrast(look.colour("muted"), ground) >= 4.5
    assert contrast(look.colour("ink"), ground) >= 7


def test_css_variables_are_the_same_table_in_light_and_dark():
    light, dark = theme.css_variables(False), theme.css_variables(True)
    assert light.keys() == dark.keys()
    assert light["--sv-accepted"] == theme.MEANINGS["accepted"].light
    assert dark["--sv-accepted"] == theme.as_plain()["accepted"]["dark"]
    assert all(value.startswith("#") and len(value) == 7 for value in (*light.values(), *dark.values()))


def test_a_finished_figure_carries_its_table_height_and_lesson(monkeypatch):
    monkeypatch.setitem(words.WORDS, "some.title", {"en": "Some", "ja": "ある図"})
    monkeypatch.setitem(words.WORDS, "some.learn", {"en": "That it is so.", "ja": "そうであること。"})
    table = pd.DataFrame({"iteration": [0, 1], "share": [0.25, None]})
    fig = theme.finish(go.Figure(), theme.Look(lang="ja"), name="some", table=table, panels=2)
    assert fig.layout.height == theme.HEIGHTS[2]
    assert fig.layout.title.text == "ある図"
    again = theme.table_of(go.Figure(fig.to_dict()))
    assert list(again.columns) == ["iteration", "share"]
    assert again["share"][0] == 0.25 and pd.isna(again["share"][1])
    with pytest.raises(ValueError, match="carries no table"):
        theme.table_of(go.Figure())


def test_every_word_is_there_in_every_language_with_the_same_placeholders():
    import string

    for key, texts in words.WORDS.items():
        assert set(texts) == set(words.LANGUAGES), key
        names = [
            sorted(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)
            for text in texts.values()
        ]
        assert all(found == names[0] for found in names), key
    for meaning in theme.MEANINGS:
        assert meaning in words.WORDS


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (" the", "·the"),
        ("\n", "⏎"),
        ("\t\tx\r", "→→x␍"),
        ("", "∅"),
        ("\x00\x1b", "␀␛"),
        ("a\u200fb\u202e", "a⟨RLM⟩b⟨RLO⟩"),
        ("\u200b\ufeff", "⟨ZWSP⟩⟨BOM⟩"),
        ("東京は", "東京は"),
        ("👩\u200d🔬", "👩\u200d🔬"),
        ("\ud83d", "⟨U+D83D⟩"),
        ("\ufffd", "\ufffd"),
    ],
)
def test_invisible_characters_become_visible(text, seen):
    assert visible(text) == seen
    visible(text).encode("utf-8")


def test_token_text_is_never_obeyed_by_plotly():
    assert token("<b>&lt;</b>") == "&lt;b&gt;&amp;lt;&lt;/b&gt;"
    assert "$" not in token("$x$")
    assert token("שלום").startswith("\u2068") and token("שלום").endswith("\u2069")
    assert len(visible("x" * 1_000_000)) == 41
