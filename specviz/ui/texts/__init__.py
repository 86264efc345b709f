"""Every text of the page, in every language: one catalogue, key -> text, the same keys in each language.

The words are those of the design: target, draft, lookahead, acceptance rate … Placeholders stand in braces and are
the same in every language. A test holds both, and that the page asks for no key that is missing.
"""

from __future__ import annotations

from specviz.figures.words import WORDS
from specviz.ui.texts import core, en, en_views, ja, ja_views

LANGUAGES = ("en", "ja")

# Words that the figures made by Python use too: said once, there.
SHARED = {
    **{f"token.{fate}": fate for fate in ("accepted", "refused", "correction", "bonus", "pending")},
    "axis.iteration": "axis.iteration",
    "axis.threshold": "threshold",
    "task.japanese": "task.japanese",
    "metric.speed": "unit.tokens_per_second",
}

CATALOGUE: dict[str, dict[str, str]] = {
    lang: {**{key: WORDS[word][lang] for key, word in SHARED.items()}, **own, **views, **said}
    for lang, own, views, said in (
        ("en", en.TEXTS, en_views.TEXTS, core.EN),
        ("ja", ja.TEXTS, ja_views.TEXTS, core.JA),
    )
}


def text(key: str, lang: str = "en", /, **values: object) -> str:
    """The text of a key; an unknown language falls back to English, an unknown key is a defect (KeyError)."""
    texts = CATALOGUE.get(lang, CATALOGUE["en"])
    found = texts[key]
    for name, value in values.items():
        found = found.replace("{" + name + "}", str(value))
    return found


def language(asked: object) -> str:
    """A language that we have, whatever was asked for."""
    return asked if isinstance(asked, str) and asked in LANGUAGES else "en"
