"""Greedy output is the target's own, and every iteration is what transformers' assisted generation does."""

import itertools

import pytest

from specviz.decoding import METHODS
from tests.decoding.reference import assisted, counts, encode, generate, run
from tests.tiny import PROMPTS, tiny_model, tiny_pair

PARAMETERS = [
    {"name": "autoregressive"},
    *({"name": "constant", "lookahead": k} for k in (0, 1, 2, 3, 5, 8, 16)),
    *({"name": "heuristic", "lookahead": k} for k in (0, 1, 2, 5)),
    *({"name": "dynamic", "lookahead": k, "threshold": t} for k in (3, 20) for t in (0.0, 0.2, 0.4, 0.9, 1.0)),
    {"name": "heuristic", "lookahead": 5, "threshold": 0.4},
    {"name": "oracle"},
    *({"name": "prompt-lookup", "lookahead": k, "ngram": n} for k in (1, 10) for n in (1, 3)),
    *({"name": "early-exit", "exit_layer": e, "lookahead": k} for e in (1, 3, 5) for k in (1, 4)),
    {"name": "early-exit-heuristic", "exit_layer": 2},
    *({"name": "early-exit-dynamic", "exit_layer": e, "threshold": t} for e in (2, 4) for t in (0.1, 0.5)),
    {"name": "early-exit-oracle", "exit_layer": 3},
]


def test_every_method_is_in_the_list():
    assert {parameters["name"] for parameters in PARAMETERS} == set(METHODS)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("likeness", [0.97, 0.8])
def test_greedy_output_equals_generate(prompt, likeness):
    """The whole grid: prompts x drafts x methods and parameters, well over 200 combinations."""
    target, draft = tiny_pair("llama", likeness=likeness)
    ids = encode(target, prompt)
    expected = generate(target, ids, 24)
    for parameters in PARAMETERS:
        trace = run(ids, target, draft, 24, **parameters)
        assert list(trace.output_ids) == expected, parameters
        assert trace.footer.end in ("limit", "eos")
        whole = target.tokenizer.decode([*ids, *trace.output_ids])
        assert "".join(trace.header.prompt_pieces) + trace.text == whole, parameters


@pytest.mark.slow
def test_greedy_output_equals_generate_on_smollm2():
    pytest.importorskip("gguf")
    from specviz.models.loading import load_model

    smollm2 = load_smollm2(load_model)
    for prompt, parameters in itertools.product(
        ("The capital of France is", "def fibonacci(n):", "1 2 3 1 2 3 1 2"),
        ({"name": "autoregressive"}, {"name": "prompt-lookup"}, {"name": "prompt-lookup", "ngram": 3, "lookahead": 4},
         {"name": "constant", "lookahead": 4}, {"name": "dynamic"}, {"name": "heuristic"}, {"name": "oracle"},
         {"name": "early-exit", "exit_layer": 20}, {"name": "early-exit-dynamic", "exit_layer": 10}),
    ):
        ids = encode(smollm2, prompt)
        trace = run(ids, smollm2, smollm2, 32, **parameters)
        assert list(trace.output_ids) == generate(smollm2, ids, 32), (prompt, parameters)


def load_smollm2(load_model):
    from specviz.models.zoo import MODELS

    if not MODELS["smollm2"].here:
        pytest.skip("SmolLM2 is not on this machine: python -m specviz fetch smollm2")
    return load_model("smollm2", device="cpu")


SETTINGS = [
    ({"name": "constant", "lookahead": 4}, {"tokens": 4, "schedule": "constant", "threshold": 0.0}),
    ({"name": "constant", "lookahead": 9}, {"tokens": 9, "schedule": "constant", "threshold": 0.0}),
    ({"name": "heuristic", "lookahead": 5}, {"tokens": 5, "schedule": "heuristic", "threshold": 0.0}),
    ({"name": "heuristic", "lookahead": 1}, {"tokens": 1, "schedule": "heuristic", "threshold": 0.0}),
    ({"name": "heuristic", "lookahead": 5, "threshold": 0.4}, {"tokens": 5, "schedule": "heuristic", "threshold": 0.4}),
    ({"name": "dynamic", "lookahead": 20, "threshold": 0.4}, {"tokens": 20, "schedule": "constant", "threshold": 0.4}),
    ({"name": "dynamic", "lookahead": 6, "threshold": 0.7}, {"tokens": 6, "schedule": "constant", "threshold": 0.7}),
]


@pytest.mark.parametrize(("ours", "theirs"), SETTINGS)
@pytest.mark.parametrize("likeness", [0.99, 0.9])
def test_iterations_equal_those_of_transformers(ours, theirs, likeness):
    target, draft = tiny_pair("llama", likeness=likeness)
    for prompt in PROMPTS[:4]:
        ids = encode(target, prompt)
        trace = run(ids, target, draft, 40, **ours)
        tokens, iterations = assisted(target, draft, ids, 40, **theirs)
        assert list(trace.output_ids) == tokens
        assert counts(trace) == iterations


def test_iterations_equal_those_of_transformers_when_the_text_ends():
    """An end-of-sequence token, drafted or corrected, ends both at the same place with the same counts."""
    plain = tiny_model("llama")
    ended = 0
    for prompt in PROMPTS:
        ids = encode(plain, prompt)
        text = generate(plain, ids, 30)
        for place in (5, 11, 17):
            if place >= len(text):
                continue
            target, draft = tiny_pair("llama", likeness=0.99, eos_ids=(2, text[place]))
            for ours, theirs in SETTINGS[:1] + SETTINGS[5:6]:
                trace = run(ids, target, draft, 30, **ours)
                tokens, iterations = assisted(target, draft, ids, 30, **theirs)
                assert list(trace.output_ids) == tokens == generate(target, ids, 30)
                assert counts(trace) == iterations
                ended += trace.iterations[-1].ending is None
    assert ended > 3  # the case that this test is for occurred
