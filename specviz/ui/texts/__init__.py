"""Every text of the page, in every language: one catalogue, key -> text, the same keys in each language.

The words are those of the design: target, draft, lookahead, acceptance rate … Placeholders stand in braces and are
the same in every language. A test holds both, and that the page asks for no key that is missing.
"""

from __future__ import annotations

from specviz.ui.texts import en, en_views, ja, ja_views

LANGUAGES = ("en", "ja")
CATALOGUE: dict[str, dict[str, str]] = {
    "en": {**en.TEXTS, **en_views.TEXTS},
    "ja": {**ja.TEXTS, **ja_views.TEXTS},
}


def text(key: str, lang: str = "en", **values: object) -> str:
    """The text of a key; an unknown language falls back to English, an unknown key is a defect (KeyError)."""
    texts = CATALOGUE.get(lang, CATALOGUE["en"])
    found = texts[key]
    for name, value in values.items():
        found = found.replace("{" + name + "}", str(value))
    return found


def language(asked: object) -> str:
    """A language that we have, whatever was asked for."""
    return asked if isinstance(asked, str) and asked in LANGUAGES else "en"
