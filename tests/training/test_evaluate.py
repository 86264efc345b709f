"""Counting accepted drafts from one pass gives what drafting and verifying step by step gives."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specviz.training.evaluate import (
    acceptance,
    ends_in_loop,
    ends_periodic,
    exit_matches,
    greedy,
    held_out_prompts,
    iterations,
)


@pytest.mark.parametrize(
    ("match", "lookahead", "counts"),
    [
        ([1, 1, 1, 1, 1, 1], 4, (4, 4, 2)),  # four drafts and a bonus, then one token of the target alone
        ([0, 0, 0], 2, (3, 0, 3)),  # two, one, none drafted
        ([1, 0, 1, 1, 0], 2, (4, 3, 2)),
        ([1], 4, (0, 0, 1)),
    ],
)
def test_iterations_counted_by_hand(match, lookahead, counts):
    assert iterations([bool(m) for m in match], lookahead) == counts


def test_the_counts_equal_a_loop_that_really_drafts():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for layer in model.model.layers[2:]:  # so that the first two layers are often right
            layer.self_attn.o_proj.weight.mul_(0.3)
            layer.mlp.down_proj.weight.mul_(0.3)
        model.lm_head.weight.mul_(20)
    prompts = torch.randint(0, 40, (3, 5))
    sequences = greedy(model, prompts, tokens=20)
    matches = exit_matches(model, sequences, 5)[1]
    early = LlamaForCausalLM(config).eval()
    early.load_state_dict(model.state_dict())
    early.model.layers = early.model.layers[:2]
    drafted = accepted = forwards = 0
    for row in sequences:
        length = 5
        while length < 25:
            size = min(4, 25 - length - 1)
            ids = row[None, :length]
            for _ in range(size):
                ids = torch.cat((ids, early(ids, use_cache=False).logits[:, -1:].argmax(-1)), 1)
            run = 0
            while run < size and ids[0, length + run] == row[length + run]:
                run += 1
            drafted, accepted, forwards, length = drafted + size, accepted + run, forwards + 1, length + run + 1
    report = acceptance(matches, 4)
    assert 0 < accepted < drafted
    assert (report["drafted"], report["accepted"]) == (drafted, accepted)
    assert report["tokens_per_forward"] == round(60 / forwards, 3)


def test_prompts_come_from_held_out_files_only(corpus):
    prompts = held_out_prompts(corpus, 12, length=20)
    text = corpus.held_out.tolist()
    windows = {tuple(text[start : start + 20]) for start in range(len(text) - 20)}
    assert prompts.shape == (12, 20)
    assert all(tuple(prompt) in windows for prompt in prompts.tolist())


@pytest.mark.parametrize(
    ("text", "looping"),
    [
        ("x = 1\n" * 3, True),
        ("a\n    return x\n    return x\n    return x\n    ret", True),
        ("x = 1\n\nx = 1\n\nx = 1\n", True),
        ("x = 1\ny = 2\nx = 1\n", False),
        ("", False),
        ("return", False),
    ],
)
def test_a_loop_is_one_line_three_times_at_the_end(text, looping):
    assert ends_in_loop(text) is looping


def test_a_loop_inside_a_line_is_seen_in_the_tokens():
    assert ends_periodic([5, 6, 7] + [1, 2] * 12)
    assert ends_periodic([3] * 30)
    assert not ends_periodic(list(range(40)))
    assert not ends_periodic([1, 2] * 11 + [1, 3])
