"""Messages of the core in the visitor's language: recognised by their shape, which the catalogue holds."""

from __future__ import annotations

import re
from functools import cache

from specviz.ui.texts import CATALOGUE, text


def said(message: str, lang: str, other: str = "error.other") -> str:
    """A message of the core in a language. One that no shape fits is shown as it is, `other` says in which words."""
    if lang == "en":
        return message
    for key, shape in _shapes():
        found = shape.fullmatch(message)
        if found:
            # What is named inside may be a message of its own.
            values = {name: said(value, lang, "") for name, value in found.groupdict().items()}
            return text(key, lang, **values)
    return text(other, lang, message=message) if other else message


@cache
def _shapes() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (key, re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(english)), re.DOTALL))
        for key, english in CATALOGUE["en"].items()
        if key.startswith("core.")
    )
