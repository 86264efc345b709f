"""The training forward is the model's own forward, and skipping means not computing."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from specviz.training.distill import choice_loss
from specviz.training.forward import TrainingForward
from specviz.training.losses import exit_losses


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():  # norms of one would hide an error in their gradients
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
            else:
                weight.mul_(4)
    return model


@pytest.fixture
def ids():
    return torch.randint(0, 97, (3, 20), generator=torch.Generator().manual_seed(1))


def test_states_and_gradients_are_those_of_the_model(model, ids):
    forward = TrainingForward(model)
    states = forward.states(ids[:, :-1])
    logits = F.linear(forward.normed(states[-1]), forward.head)
    loss = F.cross_entropy(logits, ids[:, 1:].reshape(-1))
    loss.backward()
    mine = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    reference = model(ids[:, :-1], output_hidden_states=True)
    for state, expected in zip(states[:-1], reference.hidden_states[1:-1], strict=True):
        torch.testing.assert_close(state, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits, reference.logits.flatten(0, 1), rtol=1e-4, atol=1e-4)
    F.cross_entropy(reference.logits.flatten(0, 1), ids[:, 1:].reshape(-1)).backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(mine[name], weight.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_skipped_rows_keep_their_state_and_are_not_computed(model, ids):
    forward = TrainingForward(model)
    computed = []
    block = forward.blocks[1]
    forward.blocks[1] = lambda x, cos, sin: computed.append(len(x)) or block(x, cos, sin)
    rows = {0: None, 1: torch.tensor([0, 2]), 2: torch.tensor([], dtype=torch.long)}
    states = forward.states(ids, lambda layer, batch: rows[layer])
    assert computed == [2]
    assert torch.equal(states[1][1], states[0][1])
    assert torch.equal(states[2], states[1])
    whole = forward.states(ids)
    torch.testing.assert_close(states[1][[0, 2]], whole[1][[0, 2]])


def test_exit_losses_are_the_weighted_cross_entropies(model, ids):
    """Value and gradients against autograd over plain logits; fewer rows at the early exit; more than one chunk."""
    generator = torch.Generator().manual_seed(2)
    head = torch.randn(97, 32, generator=generator, requires_grad=True)
    early = torch.randn(700, 32, generator=generator, requires_grad=True)
    final = torch.randn(1300, 32, generator=generator, requires_grad=True)
    targets = torch.randint(0, 97, (1300,), generator=generator)
    total, losses = exit_losses(head, [early, final], targets, (0.25, 0.75))
    found = torch.autograd.grad(total, (head, early, final))
    expected = [F.cross_entropy(early @ head.t(), targets[:700]), F.cross_entropy(final @ head.t(), targets)]
    wanted = 0.25 * expected[0] + 0.75 * expected[1]
    torch.testing.assert_close(losses, torch.stack(expected).detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(total, wanted)
    for mine, reference in zip(found, torch.autograd.grad(wanted, (head, early, final)), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-6)


def test_exits_that_learn_from_the_model_itself_do_not_pull_the_model(model):
    generator = torch.Generator().manual_seed(2)
    head = torch.randn(97, 32, generator=generator)
    early = torch.randn(60, 32, generator=generator, requires_grad=True)
    final = torch.randn(60, 32, generator=generator, requires_grad=True)
    targets = torch.randint(0, 97, (60,), generator=generator)
    total, _ = exit_losses(head, [early, final], targets, (0.5, 0.5), own_targets=True)
    found = torch.autograd.grad(total, (early, final))
    own = F.linear(final, head).softmax(-1).detach()
    wanted = 0.5 * F.cross_entropy(early @ head.t(), own) + 0.5 * F.cross_entropy(final @ head.t(), targets)
    for mine, reference in zip(found, torch.autograd.grad(wanted, (early, final)), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-6)


def test_choice_loss_is_cross_entropy_against_the_sharpened_target(model):
    generator = torch.Generator().manual_seed(3)
    head = torch.randn(97, 16, generator=generator, requires_grad=True)
    normed = torch.randn(600, 16, generator=generator, requires_grad=True)
    target_head, target_normed = torch.randn(97, 32, generator=generator), torch.randn(600, 32, generator=generator)
    loss, agreement = choice_loss(head, normed, target_head, target_normed, sharpness=2.0)
    target_logits = target_normed @ target_head.t()
    wanted = F.cross_entropy(normed @ head.t(), (2 * target_logits).softmax(-1))
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-5)
    assert agreement.item() == pytest.approx(
        ((normed @ head.t()).argmax(-1) == target_logits.argmax(-1)).float().mean().item()
    )
    found, expected = torch.autograd.grad(loss, (head, normed)), torch.autograd.grad(wanted, (head, normed))
    for mine, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-6)


def test_low_precision_autocast_goes_through_the_same_code(model, ids):
    """What runs on a GPU in bf16, here on the CPU."""
    forward = TrainingForward(model)
    with torch.autocast("cpu", torch.bfloat16):
        states = forward.states(ids[:, :-1], lambda layer, batch: torch.tensor([0, 1]) if layer else None)
        normed = [forward.normed(states[0]), forward.normed(states[-1])]
    total, _ = exit_losses(forward.head, normed, ids[:, 1:].reshape(-1), (0.5, 0.5))
    total.backward()
    assert torch.isfinite(total) and all(torch.isfinite(w.grad).all() for w in model.parameters())


def test_picks_are_the_argmax_of_every_exit(model, ids):
    picks = TrainingForward(model).picks(ids)
    assert picks.shape == (3, *ids.shape)
    assert torch.equal(picks[-1], model(ids).logits.argmax(-1))
