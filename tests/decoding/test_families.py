"""Two-model methods and early exit give what the target alone gives, for every family of the sources."""

from __future__ import annotations

import itertools

import pytest

from tests.decoding.reference import assisted, counts, encode, generate, run
from tests.tiny import FAMILIES, PROMPTS, tiny_model, tiny_pair

DECODERS = [family for family in FAMILIES if family != "t5"]
SETTINGS = [
    ("constant", {"lookahead": 4}, {"tokens": 4, "schedule": "constant", "threshold": 0.0}),
    ("heuristic", {"lookahead": 3}, {"tokens": 3, "schedule": "heuristic", "threshold": 0.0}),
    ("dynamic", {"lookahead": 8, "threshold": 0.4}, {"tokens": 8, "schedule": "constant", "threshold": 0.4}),
]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method, ours, theirs", SETTINGS, ids=[name for name, *_ in SETTINGS])
def test_two_models_draft_and_accept_as_in_transformers(family, method, ours, theirs):
    """Same output as generate(), and in every iteration the same numbers as transformers' own assisted generation."""
    target, draft = tiny_pair(family, likeness=0.97)
    ids = encode(target, PROMPTS[len(method) % 3])
    trace = run(ids, target, draft, 16, name=method, **ours)
    assert list(trace.output_ids) == generate(target, ids, 16)
    output, theirs_counted = assisted(target, draft, ids, 16, **theirs)
    assert list(trace.output_ids) == output
    assert counts(trace) == theirs_counted


@pytest.mark.parametrize("family", DECODERS)
def test_greedy_early_exit_equals_generate(family):
    target = tiny_model(family)
    plain = {prompt: generate(target, encode(target, prompt), 10) for prompt in PROMPTS[:3]}
    drafted = accepted = 0
    for exit_layer, lookahead in itertools.product((1, 3, 5), (1, 3, 6)):
        prompt = PROMPTS[(exit_layer + lookahead) % 3]
        trace = run(
            encode(target, prompt), target, limit=10, name="early-exit", exit_layer=exit_layer, lookahead=lookahead
        )
        assert list(trace.output_ids) == plain[prompt], (exit_layer, lookahead, prompt)
        assert all(one.drafted <= lookahead for one in trace.iterations)
        drafted += trace.footer.drafted
        accepted += trace.footer.accepted
    assert 0 < accepted < drafted  # both kinds of iteration happened


@pytest.mark.slow
@pytest.mark.parametrize("family", DECODERS)
def test_greedy_early_exit_equals_generate_everywhere(family):
    """Every exit layer with short and long lookaheads, every prompt."""
    target = tiny_model(family, seed=1)
    for place, prompt in enumerate(PROMPTS):
        ids = encode(target, prompt)
        plain = generate(target, ids, 24)
        for exit_layer in range(1, 6):
            lookahead = (1, 2, 3, 5, 8)[(exit_layer + place) % 5]
            trace = run(ids, target, limit=24, name="early-exit", exit_layer=exit_layer, lookahead=lookahead)
            assert list(trace.output_ids) == plain, (exit_layer, lookahead, prompt)


@pytest.mark.parametrize("family", DECODERS)
def test_the_other_policies_exit_early_losslessly(family):
    target = tiny_model(family)
    ids = encode(target, PROMPTS[2])
    plain = generate(target, ids, 8)
    for method in ("early-exit-dynamic", "early-exit-heuristic", "early-exit-oracle"):
        trace = run(ids, target, limit=8, name=method, exit_layer=4)
        assert list(trace.output_ids) == plain, method
        if method == "early-exit-oracle":
            assert trace.footer.drafted == trace.footer.accepted


@pytest.mark.parametrize("family", FAMILIES)
def test_end_of_sequence_inside_a_draft(family):
    """A token of the plain output is made the end of sequence; the draft that holds it is long enough to go on."""
    plain = tiny_model(family)
    ids = encode(plain, PROMPTS[0])
    output = generate(plain, ids, 12)
    accepted_ends = 0
    for last in list(dict.fromkeys(output[2:8]))[:2]:
        target, draft = tiny_pair(family, likeness=1.0, eos_ids=(last,))
        wanted = output[: output.index(last) + 1]
        traces = [run(ids, target, draft, 12, name="constant", lookahead=7)]
        if family != "t5":
            traces += [
                run(ids, target, limit=12, name="early-exit", exit_layer=exit_layer, lookahead=7)
                for exit_layer in (3, 5)
            ]
        for trace in traces:
            assert list(trace.output_ids) == wanted
            assert trace.footer.end == "eos"
        accepted_ends += sum(trace.iterations[-1].ending is None for trace in traces)
    assert accepted_ends
