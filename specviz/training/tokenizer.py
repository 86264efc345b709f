"""A byte-level BPE tokenizer for Python source that keeps a line break and its indentation together as one token."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"

# Pieces that merges may not cross: a word with the one sign before it; a digit; a run of signs; line breaks with the
# indentation that follows them (blank lines included); other spaces. The first alternative that matches wins.
PIECES = r"(?:[ \t]*\n)+[ \t]*|[^\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|[ \t]+"

# A quarter of all tokens begin a line; these must not depend on what the merges happened to find.
INDENTED = [breaks + " " * spaces for breaks in ("\n", "\n\n") for spaces in range(0, 25, 4)]


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Learn merges from ``texts`` until there are ``vocabulary`` tokens, ``<|endoftext|>`` (id 0, also padding) included."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # The indents are put before the learner often enough that their merges are among the first ones found.
    tokenizer.train_from_iterator(_with_indents(texts), trainer=trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )


def _with_indents(texts: Iterable[str]) -> Iterable[str]:
    yield from texts
    for indent in INDENTED:
        yield from [f"x{indent}"] * 2000


def load_tokenizer(folder) -> PreTrainedTokenizerFast:
    """The tokenizer saved in ``folder``."""
    return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
