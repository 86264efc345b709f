"""Text of tokens as they come, where a character may be split over tokens."""

from __future__ import annotations

import codecs
import json
import weakref
from collections.abc import Sequence

from transformers import PreTrainedTokenizerFast

# Tokens of context that stay in the window, so that decoders which treat the first token apart
# (SentencePiece drops its leading space) see the following ones as they are in the middle of a text.
_CONTEXT = 6
_WINDOW = 16

_UNFINISHED = "\ufffd"


class TextPieces:
    """Gives the text that becomes complete with each token.

    All pieces, and the ``tail`` at the end, join to the tokenizer's own decoding of the whole. A token in
    the middle of a character gives "", the one that completes the character gives all of it. Of a byte-level
    tokenizer, as most are, the bytes of each token are known; any other is asked to decode a short window.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, ids: Sequence[int] = ()):
        self._pieces = _BytePieces(_byte_table(tokenizer)) if _is_byte_level(tokenizer) else _Window(tokenizer)
        for token in ids[-_WINDOW:]:
            self.push(token)

    def fork(self) -> TextPieces:
        """An independent copy, to spell out a draft that may be refused."""
        other = object.__new__(TextPieces)
        other._pieces = self._pieces.fork()
        return other

    def push(self, token: int) -> str:
        return self._pieces.push(token)

    @property
    def tail(self) -> str:
        """Text of the tokens since the last complete character, as the tokenizer writes it."""
        return self._pieces.tail


class _BytePieces:
    def __init__(self, table: _ByteTable, pending: bytes = b""):
        self._table = table
        self._pending = pending  # the beginning of a character

    def fork(self) -> _BytePieces:
        return _BytePieces(self._table, self._pending)

    def push(self, token: int) -> str:
        whole = self._pending + self._table[token]
        try:
            text, self._pending = whole.decode(), b""
        except UnicodeDecodeError:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            text = decoder.decode(whole)
            self._pending = decoder.getstate()[0]
        return text

    @property
    def tail(self) -> str:
        return self._pending.decode(errors="replace")


class _Window:
    def __init__(self, tokenizer: PreTrainedTokenizerFast):
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._given = ""  # text of the window that was already given out

    def fork(self) -> _Window:
        other = _Window(self._tokenizer)
        other._window = self._window.copy()
        other._given = self._given
        return other

    def push(self, token: int) -> str:
        self._window.append(token)
        whole = self._decode(self._window)
        if whole.endswith(_UNFINISHED) or not whole.startswith(self._given):
            return ""
        piece = whole[len(self._given) :]
        self._given = whole
        if len(self._window) > _WINDOW:
            self._window = self._window[-_CONTEXT:]
            self._given = self._decode(self._window)
        return piece

    @property
    def tail(self) -> str:
        return self._decode(self._window)[len(self._given) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


class _ByteTable(dict):
    """Token id -> its bytes, looked up once each. Ids that the tokenizer doesn't know have none."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast):
        # A table may live as long as its tokenizer, which is its key, so it holds only what the tokenizer holds.
        self._core = tokenizer.backend_tokenizer
        # How byte-level tokenizers write bytes: printable ones as themselves, the others behind U+0100.
        shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        hidden = [byte for byte in range(0x100) if byte not in shown]
        self._bytes = {chr(byte): byte for byte in shown} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}

    def __missing__(self, token: int) -> bytes:
        name = self._core.id_to_token(token) or ""
        try:
            found = bytes([self._bytes[symbol] for symbol in name])
        except KeyError:  # an added token that is written as it is
            found = name.encode()
        self[token] = found
        return found


_TABLES: weakref.WeakKeyDictionary[PreTrainedTokenizerFast, _ByteTable | None] = weakref.WeakKeyDictionary()


def _is_byte_level(tokenizer: PreTrainedTokenizerFast) -> bool:
    return _byte_table(tokenizer) is not None


def _byte_table(tokenizer: PreTrainedTokenizerFast) -> _ByteTable | None:
    if tokenizer not in _TABLES:
        core = getattr(tokenizer, "backend_tokenizer", None)
        decoder = json.loads(core.decoder.__getstate__()) if core is not None and core.decoder is not None else {}
        _TABLES[tokenizer] = _ByteTable(tokenizer) if decoder.get("type") == "ByteLevel" else None
    return _TABLES[tokenizer]


def prompt_pieces(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> tuple[str, ...]:
    """One piece of text per prompt token."""
    pieces = TextPieces(tokenizer)
    return tuple(pieces.push(token) for token in ids)
