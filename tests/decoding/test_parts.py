"""Acceptance, policies, names of parameters, pieces of text."""

import pytest
import torch
from transformers import GenerationConfig

from specviz.decoding import MethodConfig, Sampling
from specviz.decoding.acceptance import accepted_prefix, sampled_prefix
from specviz.decoding.policies import Constant, Heuristic, Oracle, run_lengths
from specviz.decoding.text import TextPieces, prompt_pieces
from specviz.errors import UsageError
from tests.tiny import tiny_tokenizer


def test_accepted_prefix():
    assert accepted_prefix([], [4]) == 0
    assert accepted_prefix([4, 5], [4, 5, 6]) == 2
    assert accepted_prefix([4, 5], [4, 6, 6]) == 1
    assert accepted_prefix([4, 5], [5, 5, 6]) == 0


def test_a_token_that_the_target_rules_out_never_stands():
    generator = torch.Generator().manual_seed(0)
    p = torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
    q = torch.tensor([[1.0, 0.0, 0.0]])
    for _ in range(200):
        accepted, token = sampled_prefix([0], q, p, generator)
        assert accepted == 0 and token in (1, 2)


def test_a_draft_distribution_equal_to_the_targets_always_stands():
    generator = torch.Generator().manual_seed(0)
    p = torch.tensor([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]])
    for _ in range(200):
        assert sampled_prefix([2], p[:1], p, generator) == (1, 1)


def test_policies():
    constant = Constant(3)
    assert constant.lookahead(0) == 3 and constant.threshold == 0
    dynamic = Constant(20, 0.4)
    assert dynamic.threshold == 0.4
    assert dynamic.state() == {"lookahead": 20, "threshold": 0.4}
    heuristic = Heuristic(5)
    lengths = []
    for accepted in (5, 7, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1):
        lengths.append(heuristic.lookahead(0))
        heuristic.learn(heuristic.lookahead(0), accepted)
    assert lengths == [5, 7, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1]
    assert heuristic.lookahead(0) == 3
    oracle = Oracle([2, 1, 0])
    assert [oracle.lookahead(t) for t in range(4)] == [2, 1, 0, 0]
    assert run_lengths([True, True, False, True]) == [2, 1, 0, 1]


def test_the_sources_parameter_names_are_understood():
    read = MethodConfig.from_names
    assert read({"num_assistant_tokens": 7, "num_assistant_tokens_schedule": "constant"}) == MethodConfig("constant", 7)
    assert read({"num_assistant_tokens": 7, "num_assistant_tokens_schedule": "heuristic"}) == MethodConfig("heuristic", 7)
    assert read({"num_assistant_tokens_schedule": "dynamic"}).filled() == MethodConfig("dynamic", 20, 0.4)
    assert read({"assistant_confidence_threshold": 0.55}) == MethodConfig("dynamic", threshold=0.55)
    # schedule constant with a threshold is how transformers spells dynamic
    assert read({"num_assistant_tokens": 20, "num_assistant_tokens_schedule": "constant",
                 "assistant_confidence_threshold": 0.4}) == MethodConfig("dynamic", 20, 0.4)
    assert read({"num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0}).name == "constant"
    assert read({"num_assistant_tokens_schedule": "heuristic", "assistant_confidence_threshold": 0.4}) == MethodConfig(
        "heuristic", threshold=0.4)
    assert read({"assistant_early_exit": 4, "num_assistant_tokens": 3}) == MethodConfig("early-exit", 3, exit_layer=4)
    assert read({"assistant_early_exit": 4, "assistant_confidence_threshold": 0.3}).name == "early-exit-dynamic"
    assert read({"prompt_lookup_num_tokens": 6, "max_matching_ngram_size": 3}) == MethodConfig(
        "prompt-lookup", 6, ngram=3)
    assert read({"method": "dynamic", "lookahead": 4}) == MethodConfig("dynamic", 4)


def test_unknown_names_and_values_say_what_to_choose():
    for given, message in (
        ({"num_assistent_tokens": 3}, "unknown parameter"),
        ({"num_assistant_tokens_schedule": "cosine"}, "choose constant, heuristic"),
        ({"name": "magic"}, "choose one of autoregressive"),
        ({"name": "constant", "lookahead": -1}, "choose 0..1024"),
        ({"name": "dynamic", "threshold": 1.2}, "it is a probability"),
        ({"name": "constant", "exit_layer": 2}, "no meaning for the method constant"),
        ({"name": "prompt-lookup", "ngram": 0}, "choose 1..16"),
    ):
        with pytest.raises(UsageError, match=message):
            MethodConfig.from_names(given)


def test_a_draft_models_own_generation_config_is_read():
    config = GenerationConfig(num_assistant_tokens=9, assistant_confidence_threshold=0.2)
    assert MethodConfig.from_generation_config(config) == MethodConfig("dynamic", 9, 0.2)
    assert MethodConfig.from_generation_config(GenerationConfig()) == MethodConfig("dynamic", 20, 0.4)
    config = GenerationConfig(num_assistant_tokens=5, num_assistant_tokens_schedule="heuristic",
                              assistant_confidence_threshold=0.0)
    assert MethodConfig.from_generation_config(config).name == "heuristic"


def test_sampling_values_out_of_range_are_refused():
    for bad in ({"temperature": -1}, {"temperature": float("nan")}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5},
                {"seed": 2**70}):
        with pytest.raises(UsageError):
            Sampling(**bad)


TEXTS = ("plain text", "東京は日本の首都です。", "family 👨‍👩‍👧‍👦 and 🙂🇯🇵 flags", "naïve café\n\tindent  ", "\u202eright to left",
         "a\x00b", "한국어 עברית")


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_tokenizers_own_decoding(text):
    tokenizer = tiny_tokenizer()
    ids = tokenizer(text).input_ids
    assert "".join(prompt_pieces(tokenizer, ids)) == tokenizer.decode(ids) == text
    for cut in range(len(ids)):
        pieces = TextPieces(tokenizer, ids[:cut])
        done = "".join(prompt_pieces(tokenizer, ids[:cut]))
        rest = "".join(pieces.push(token) for token in ids[cut:])
        assert done + rest == text


def test_an_unfinished_character_waits_in_the_tail():
    tokenizer = tiny_tokenizer()
    ids = tokenizer("ab東").input_ids
    pieces = TextPieces(tokenizer)
    given = [pieces.push(token) for token in ids[:-1]]
    assert given[:2] == ["a", "b"] and set(given[2:]) == {""}
    assert "".join(given) + pieces.tail == tokenizer.decode(ids[:-1])
    fork = pieces.fork()
    assert fork.push(ids[-1]) == "東"
    assert pieces.tail and pieces.push(ids[-1]) == "東"  # the fork changed nothing


def test_broken_bytes_join_too():
    tokenizer = tiny_tokenizer()
    whole = tokenizer("東京🙂").input_ids
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        order = torch.randint(len(whole), (40,), generator=generator).tolist()
        ids = [whole[i] for i in order]
        pieces = TextPieces(tokenizer)
        text = "".join(pieces.push(token) for token in ids) + pieces.tail
        assert text == tokenizer.decode(ids)
