"""Sampled output has the target's distribution, and a broken acceptance rule is noticed."""

import pytest
import torch

from specviz.decoding import MethodConfig, Sampling, build
from specviz.decoding.acceptance import sampled_prefix
from tests.decoding.distribution import exact, near, p_value, random_table, speculate
from tests.decoding.reference import run_method
from tests.tiny import tiny_pair

DRAWS = 20_000
TARGET = random_table(1)
GOOD, BAD = near(TARGET, 2, 0.5), random_table(9)
SLOW = ("top-k, bad draft",)
CASES = {
    "good draft": (GOOD, Sampling(1.0, seed=11)),
    "bad draft": (BAD, Sampling(1.0, seed=12)),
    "top-p": (GOOD, Sampling(0.8, top_p=0.8, seed=13)),
    "top-k, bad draft": (BAD, Sampling(1.3, top_k=3, seed=14)),
}


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.slow if c in SLOW else ()) for c in CASES])
def test_sampling_keeps_the_targets_distribution(case):
    draft, sampling = CASES[case]
    seen = speculate(TARGET, draft, sampling, DRAWS)
    assert sum(seen.values()) == DRAWS
    assert p_value(seen, exact(TARGET, sampling)) > 0.001


@pytest.mark.slow
def test_sampling_from_a_draft_that_knows_fewer_tokens_is_exact():
    """A trimmed vocabulary: tokens outside have draft probability 0 and come from the target alone."""
    sampling = Sampling(1.0, seed=15)
    trimmed = GOOD.clone()
    trimmed[:, 4:] = float("-inf")
    assert p_value(speculate(TARGET, trimmed, sampling, DRAWS), exact(TARGET, sampling)) > 0.001


def accept_without_residual(ids, q, p, generator):
    """Broken on purpose: replaces a refused token by a draw from p instead of the positive part of p - q."""
    accepted, token = sampled_prefix(ids, q, p, generator)
    if accepted < len(ids):
        token = int(torch.multinomial(p[accepted], 1, generator=generator))
    return accepted, token


def accept_too_much(ids, q, p, generator):
    """Broken on purpose: half as strict as it should be."""
    return sampled_prefix(ids, q / 2, p, generator)


@pytest.mark.parametrize("broken", [accept_without_residual, accept_too_much])
def test_a_broken_acceptance_rule_is_noticed(broken):
    draft, sampling = CASES["bad draft"]
    seen = speculate(TARGET, draft, sampling, 2_000, accept=broken)
    assert p_value(seen, exact(TARGET, sampling)) < 1e-6


def test_sampling_from_a_drafter_without_probabilities_is_exact():
    """Prompt lookup copies tokens, whatever they are: q is 1 there."""
    sampling = Sampling(1.0, seed=16)
    copies = torch.full_like(BAD, float("-inf")).scatter_(1, BAD.argmax(dim=1, keepdim=True), 0.0)
    seen = speculate(TARGET, copies, sampling, DRAWS,
                     accept=lambda ids, q, p, generator: sampled_prefix(ids, None, p, generator))
    assert p_value(seen, exact(TARGET, sampling)) > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("name", ["constant", "dynamic", "early-exit", "prompt-lookup"])
def test_whole_runs_of_a_real_model_keep_its_distribution(name):
    """The full loop on a tiny model; every probability from the model's own forward."""
    target, draft = tiny_pair("llama", likeness=0.9)
    sampling = Sampling(0.7, top_k=4)
    prompt = target.tokenizer("The cat sat on the cat").input_ids
    expected = three_tokens(target, prompt, sampling)
    method = build(MethodConfig(name), target, draft)
    seen: dict = {}
    for seed in range(DRAWS):
        trace = run_method(prompt, method, 3, sampling=Sampling(0.7, top_k=4, seed=seed))
        seen[trace.output_ids] = seen.get(trace.output_ids, 0) + 1
    assert p_value(seen, expected) > 0.001


def three_tokens(target, prompt, sampling):
    from specviz.decoding import Detail
    from specviz.decoding.sampling import Picker

    picker = Picker(sampling, Detail(), target.device)
    texts = {(): 1.0}
    with torch.inference_mode():
        for _ in range(3):
            grown = {}
            for text, p in texts.items():
                if text and text[-1] in target.eos_ids:
                    grown[text] = p
                    continue
                row = picker.probabilities(target.model(torch.tensor([[*prompt, *text]])).logits[0, -1:])[0]
                for token in row.nonzero()[:, 0].tolist():
                    grown[(*text, token)] = p * float(row[token])
            texts = grown
    total = sum(texts.values())
    return {text: p / total for text, p in texts.items()}
