from __future__ import annotations

from dataclasses import replace

import pytest

from specviz.errors import UsageError
from specviz.models.loading import check_pair
from tests.tiny import VOCAB, tiny_model, tiny_tokenizer


def retokenized(loaded, change):
    import copy

    tokenizer = copy.deepcopy(tiny_tokenizer())
    change(tokenizer)
    return replace(loaded, tokenizer=tokenizer, name="other")


def test_one_tokenizer_and_logits_padded_to_different_sizes_make_a_pair():
    target, wide = tiny_model(), tiny_model(vocab_size=VOCAB + 64)
    assert check_pair(target, target) == VOCAB
    assert check_pair(target, wide) == check_pair(wide, target) == VOCAB


def test_different_families_with_one_tokenizer_make_a_pair():
    assert check_pair(tiny_model("opt"), tiny_model("opt", num_hidden_layers=2)) == VOCAB
    assert check_pair(tiny_model("t5"), tiny_model("t5", num_layers=2, num_decoder_layers=2)) == VOCAB


def test_reserved_tokens_may_bear_different_names():
    target = tiny_model()

    def rename(tokenizer):
        from tokenizers import Tokenizer

        text = tokenizer.backend_tokenizer.to_str().replace("<|assistant|>", "<|reserved_4|>")
        tokenizer._tokenizer = Tokenizer.from_str(text)

    assert check_pair(target, retokenized(target, rename)) == VOCAB


def test_another_vocabulary_is_refused_with_both_names():
    target = tiny_model()

    def swap(tokenizer):
        import json

        from tokenizers import Tokenizer

        core = json.loads(tokenizer.backend_tokenizer.to_str())
        vocab = core["model"]["vocab"]
        vocab["q"], vocab["z"] = vocab["z"], vocab["q"]
        tokenizer._tokenizer = Tokenizer.from_str(json.dumps(core))

    with pytest.raises(UsageError) as caught:
        check_pair(target, retokenized(target, swap))
    assert target.name in str(caught.value) and "other" in str(caught.value) and "'q'" in str(caught.value)


def test_the_same_tokens_cut_otherwise_are_refused():
    target = tiny_model()

    def spaces(tokenizer):
        from tokenizers import pre_tokenizers

        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(" ", "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )

    with pytest.raises(UsageError, match="cut texts differently"):
        check_pair(target, retokenized(target, spaces))


def test_an_encoder_decoder_does_not_draft_for_a_decoder():
    with pytest.raises(UsageError, match="encoder-decoder"):
        check_pair(tiny_model(), tiny_model("t5"))
