"""May one model draft for another? Only if the same id means the same piece of text in both."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from specviz.errors import UsageError

if TYPE_CHECKING:
    from specviz.models.loading import LoadedModel

# Exercises merges, spaces, digits, accents, scripts, characters split over tokens, code, and rare symbols.
SAMPLE = (
    "The quick brown fox doesn't jump over 12,345 lazy dogs.\n\n    def f(x: int) -> str:\n\treturn f'{x!r}'  # ok\n"
    "naïve café, Größe, Привет мир, 東京タワー, 안녕, مرحبا, 🙂👩‍💻 \u200b — “quotes” x²≥π\r\n<tag attr='1'/> 0x1F e.g.  \n"
)


# Vocabularies of a hundred thousand tokens take a tenth of a second to compare; a pair is asked about on every run.
_compared: WeakKeyDictionary = WeakKeyDictionary()


def check_pair(target: LoadedModel, draft: LoadedModel) -> int:
    """How many token ids the two models share; the draft may only propose ids below that number.

    Logits padded to different sizes are allowed. UsageError, naming both, if an id stands for different text in the
    two tokenizers, or if they cut a text into different tokens.
    """
    reason = _difference(target, draft)
    if reason:
        raise UsageError(
            f"{draft.name} cannot draft for {target.name}: {reason}; choose a draft model of the same family"
        )
    return min(target.vocab_size, draft.vocab_size)


def _difference(target: LoadedModel, draft: LoadedModel) -> str | None:
    if target.is_encoder_decoder != draft.is_encoder_decoder:
        return "one is an encoder-decoder model and the other is not"
    if target.tokenizer is draft.tokenizer:
        return None
    known = _compared.setdefault(target.tokenizer, WeakKeyDictionary()).setdefault(draft.tokenizer, {})
    shared = min(target.vocab_size, draft.vocab_size)
    if shared not in known:
        known[shared] = _compare(target, draft, shared)
    return known[shared]


def _compare(target: LoadedModel, draft: LoadedModel, shared: int) -> str | None:
    theirs, ours = _by_id(target.tokenizer, shared), _by_id(draft.tokenizer, shared)
    special = _added(target.tokenizer) | _added(draft.tokenizer)
    for index in sorted(theirs.keys() | ours.keys()):
        # Special tokens may bear other names (Llama 3 renamed reserved ones later), or exist in one model only.
        if theirs.get(index) != ours.get(index) and index not in special:
            return f"their tokenizers differ, token {index} is {theirs.get(index)!r} and {ours.get(index)!r}"
    texts = [model.tokenizer(SAMPLE, add_special_tokens=False).input_ids for model in (target, draft)]
    if texts[0] != texts[1]:
        return "their tokenizers have the same tokens but cut texts differently"
    return None


def _by_id(tokenizer, limit: int) -> dict[int, str]:
    return {index: token for token, index in tokenizer.get_vocab().items() if index < limit}


def _added(tokenizer) -> set[int]:
    return {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
