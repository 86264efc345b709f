"""Text of tokens as they come, where a character may be split over tokens."""

from __future__ import annotations

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
    the middle of a character gives "", the one that completes the character gives all of it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, ids: Sequence[int] = ()):
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._given = ""  # text of the window that was already given out
        for token in ids[-_WINDOW:]:
            self.push(token)

    def fork(self) -> TextPieces:
        """An independent copy, to spell out a draft that may be refused."""
        other = object.__new__(TextPieces)
        other._tokenizer = self._tokenizer
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
        """Text of the tokens since the last complete character, as the tokenizer writes it."""
        return self._decode(self._window)[len(self._given) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def prompt_pieces(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> tuple[str, ...]:
    """One piece of text per prompt token."""
    pieces = TextPieces(tokenizer)
    return tuple(pieces.push(token) for token in ids)
