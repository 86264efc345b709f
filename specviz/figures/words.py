"""The texts of the figures, in every language of the page: one table, key -> language -> text.

``NAME.title`` and ``NAME.learn`` belong to the figure of that name: its title, and what one learns from it.
Placeholders in braces are the same in every language; a test holds that, and that no text is missing.
"""

from __future__ import annotations

from typing import Any

LANGUAGES = ("en", "ja")

WORDS: dict[str, dict[str, str]] = {
    "empty": {"en": "No iteration yet", "ja": "まだ反復がありません"},
    # meanings
    "accepted": {"en": "accepted", "ja": "採択"},
    "refused": {"en": "refused", "ja": "棄却"},
    "correction": {"en": "correction", "ja": "訂正"},
    "bonus": {"en": "bonus", "ja": "ボーナス"},
    "pending": {"en": "pending", "ja": "検証待ち"},
    "draft": {"en": "draft", "ja": "ドラフト"},
    "target": {"en": "target", "ja": "ターゲット"},
    "early": {"en": "early layers", "ja": "前半の層"},
    "late": {"en": "late layers", "ja": "後半の層"},
    "other": {"en": "other", "ja": "その他"},
    "oracle": {"en": "oracle", "ja": "オラクル"},
    "threshold": {"en": "threshold", "ja": "しきい値"},
    "speed": {"en": "speed", "ja": "速度"},
    "best": {"en": "best", "ja": "最良"},
}


def word(key: str, lang: str = "en", **values: Any) -> str:
    """A text in a language, with its placeholders filled. KeyError for an unknown key: that is a defect, not data."""
    texts = WORDS[key]
    text = texts.get(lang) or texts["en"]
    return text.format(**values) if values else text
