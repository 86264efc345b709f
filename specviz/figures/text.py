"""Token text that can be seen: spaces, line breaks and invisible characters get a visible sign.

Plotly reads a few HTML tags in every text that it draws, so what goes into a figure is escaped as well.
"""

from __future__ import annotations

import unicodedata

_SIGNS = {
    " ": "·",
    "\n": "⏎",
    "\r": "␍",
    "\t": "→",
    "\x7f": "␡",
    "\u00a0": "⍽",
    "\u00ad": "⟨SHY⟩",
    "\u061c": "⟨ALM⟩",
    "\u200b": "⟨ZWSP⟩",
    "\u200c": "⟨ZWNJ⟩",
    "\u200d": "⟨ZWJ⟩",
    "\u200e": "⟨LRM⟩",
    "\u200f": "⟨RLM⟩",
    "\u2028": "⟨LS⟩",
    "\u2029": "⟨PS⟩",
    "\u202a": "⟨LRE⟩",
    "\u202b": "⟨RLE⟩",
    "\u202c": "⟨PDF⟩",
    "\u202d": "⟨LRO⟩",
    "\u202e": "⟨RLO⟩",
    "\u2060": "⟨WJ⟩",
    "\u2066": "⟨LRI⟩",
    "\u2067": "⟨RLI⟩",
    "\u2068": "⟨FSI⟩",
    "\u2069": "⟨PDI⟩",
    "\u3000": "□",
    "\ufeff": "⟨BOM⟩",
}
NOTHING = "∅"  # a token that completed no text: a part of a character, or a special token

_LONGEST = 40


def visible(text: str, longest: int = _LONGEST) -> str:
    """Text with every space, break and invisible character shown as a sign; cut after `longest` characters with "…".

    An empty text gives ``∅``. Joiners between visible characters (as in an emoji family) stay as they are.
    """
    if not text:
        return NOTHING
    out = []
    for index, char in enumerate(text[:longest]):
        joins = char == "\u200d" and 0 < index < len(text) - 1 and not text[index - 1].isspace()
        out.append(char if joins else _sign(char))
    return "".join(out) + ("…" if len(text) > longest else "")


def _sign(char: str) -> str:
    if char in _SIGNS:
        return _SIGNS[char]
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    kind = unicodedata.category(char)
    if kind in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return f"⟨U+{code:04X}⟩"
    if kind == "Zs":
        return "·"
    return char


def escaped(text: str) -> str:
    """Text that Plotly draws as it is: no tag of it is obeyed, no right-to-left run of it turns its neighbours round."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # MathJax, where a page has it loaded, takes a text that is wrapped in dollar signs.
    safe = safe.replace("$", "&#36;")
    if any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text):
        safe = f"\u2068{safe}\u2069"
    return safe


def token(text: str, longest: int = _LONGEST) -> str:
    """A token's text for a figure: visible and escaped."""
    return escaped(visible(text, longest))
