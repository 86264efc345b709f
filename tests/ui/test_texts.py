"""One catalogue: the same keys in every language, and none that the page asks for is missing."""

from __future__ import annotations

import re

from specviz.decoding import METHODS
from specviz.trace import STOP_REASONS
from specviz.ui import published, static
from specviz.ui.shelf import Shelf
from specviz.ui.texts import CATALOGUE, LANGUAGES

SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in static.PAGE.glob("*.js")}


def test_languages_hold_the_same_keys_and_placeholders():
    english = CATALOGUE["en"]
    for lang in LANGUAGES:
        texts = CATALOGUE[lang]
        assert set(texts) == set(english)
        for key, text in texts.items():
            assert text.strip(), key
            named, there = (set(re.findall(r"\{(\w+)\}", one)) for one in (text, english[key]))
            # A message of the core may name more than a reader of another language needs.
            assert named <= there if key.startswith("core.") else named == there, key


def test_every_key_that_the_scripts_name_exists():
    used = set()
    for script in SCRIPTS.values():
        used |= set(re.findall(r"""\bt(?:Label|Title|Placeholder)?(?:: |\()["']([a-z_]+\.[\w.\-]+)["']""", script))
    assert len(used) > 100
    assert not used - set(CATALOGUE["en"])


def test_every_key_that_is_put_together_exists():
    keys = set(CATALOGUE["en"])
    for name, spec in METHODS.items():
        assert {f"method.{name}", f"method.{name}.note", f"drafter.{spec.drafter}"} <= keys
        assert {f"param.{parameter}" for parameter in spec.parameters} <= keys
        assert {f"param.{parameter}.short" for parameter in spec.parameters} <= keys
    assert {f"stop.{reason}" for reason in STOP_REASONS} <= keys
    assert {f"story.{kind}" for kind in ("correction", "bonus")} <= keys
    for kind in ("accepted", "refused", "correction", "bonus", "pending"):
        assert {f"token.{kind}", f"legend.{kind}"} <= keys
    steps = re.search(r"STEPS = \[(.*?)\]", SCRIPTS["walk.js"]).group(1)
    for step in re.findall(r'"(\w+)"', steps):
        assert {f"walk.{step}.title", f"walk.{step}.text"} <= keys
    for source in published.tables(Shelf(), 1e12):
        assert {f"published.{column}" for column in source["columns"]} <= keys
        assert not source["note"] or source["note"] in keys
        for part in ("title", "hardware"):  # in English as the source's own table says
            assert CATALOGUE["en"][f"published.{part}.{source['name']}"] == source[part]
        words = {cell for row in source["rows"] for cell in row["cells"] if isinstance(cell, str)}
        for word in words & {"summarisation", "open-ended", "code (python)", "none"}:
            assert CATALOGUE["en"][f"published.cell.{word}"] == word
    views = re.search(r"VIEWS = \{(.*?)\}", SCRIPTS["app.js"]).group(1)
    assert {f"view.{view}" for view in re.findall(r"(\w+):", views)} <= keys


def test_scripts_never_make_markup_of_data():
    for name, script in SCRIPTS.items():
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in script, f"{name}: {word}"
