"""Early exit shares weights, cache and computation with its target, and leaves nothing behind."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch

from specviz.decoding import MethodConfig, Sampling, build, decode, methods
from specviz.models import forward, streams
from specviz.models.families import SPLIT
from tests.decoding.distribution import early_exit, exact, near, p_value, random_table, speculate
from tests.decoding.reference import encode, generate, run, run_method
from tests.tiny import FAMILIES, PROMPTS, fresh, tiny_model

DECODERS = [family for family in FAMILIES if family != "t5"]
LONG = "def add(a, b):\n    return " * 12


def layers_of(loaded):
    return getattr(loaded.model.get_decoder(), SPLIT[loaded.model.config.model_type].layers)


def count_passes(loaded):
    """Token-passes of every layer from now on: a list that grows, and the hooks that make it grow."""
    passes = [0] * len(layers_of(loaded))

    def counter(index):
        def count(module, args):
            passes[index] += args[0].shape[1]
        return count

    return passes, [layer.register_forward_pre_hook(counter(index)) for index, layer in enumerate(layers_of(loaded))]


@pytest.fixture
def module_by_module(monkeypatch):
    """Run early exit on the model's own modules, which hooks can watch, also where a faster way is there."""
    monkeypatch.setattr(methods, "open_split_stream", lambda loaded, length=0: forward.GenericSplitStream(loaded))


# --- work is counted, not believed -----------------------------------------------------------------------

@pytest.mark.parametrize("family", DECODERS)
def test_every_layer_reads_every_position_once(family, module_by_module):
    """All layers do the same work: what was drafted below the exit is not computed again for the verification."""
    target = fresh(tiny_model(family))
    ids = encode(target, PROMPTS[0])
    expected = generate(target, ids, 10)
    passes, _ = count_passes(target)
    trace = run(ids, target, limit=10, name="early-exit", exit_layer=2, lookahead=3)
    assert set(passes) == {len(ids) - 1 + sum(one.drafted + 1 for one in trace.iterations)}
    assert list(trace.output_ids) == expected


class Watched:
    """A split stream that counts what it is asked to run, and fails at a call if it is told to."""

    def __init__(self, stream, fail_at=None):
        self.stream, self.fail_at, self.calls = stream, fail_at, 0
        self.passes = [0] * stream.layers

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def run(self, hidden, first, last):
        self.calls += 1
        if self.calls == self.fail_at:
            # As memory runs out in the middle of the layers: some of them have read the tokens already.
            self.stream.run(hidden, first, (first + last + 1) // 2)
            raise MemoryError("no room for these keys")
        for layer in range(first, last):
            self.passes[layer] += hidden.shape[1]
        return self.stream.run(hidden, first, last)

    def draft(self, *args, layers, **options):
        """As many runs as tokens are read, made in one call."""
        made = self.stream.draft(*args, layers=layers, **options) if hasattr(self.stream, "draft") else None
        if made is not None:
            states = made[2]
            self.calls += len(states)
            if self.fail_at and self.calls >= self.fail_at > self.calls - len(states):
                raise MemoryError("no room for these keys")
            self.passes[:layers] = [count + len(states) for count in self.passes[:layers]]
            assert {self.stream.layer_length(layer) for layer in range(layers)} == {
                self.stream.layer_length(layers) + len(states)
            }
        return made

    def forward(self, ids, keep=None):
        self.passes = [count + len(ids) for count in self.passes]
        return self.stream.forward(ids, keep)


@pytest.fixture
def watched(monkeypatch):
    """Streams that the test's methods open, as they open them by themselves."""
    opened = []

    def watch(fail_at=None):
        def open_split_stream(loaded, *, length=0):
            opened.append(Watched(streams.open_split_stream(loaded, length=length), fail_at))
            return opened[-1]

        monkeypatch.setattr(methods, "open_split_stream", open_split_stream)
        return opened

    yield watch
    opened.clear()


@pytest.mark.parametrize("name", ["early-exit", "early-exit-heuristic", "early-exit-dynamic"])
def test_the_stream_in_use_runs_every_layer_equally_often(name, watched):
    opened = watched()
    target = tiny_model("llama")
    trace = run(encode(target, PROMPTS[2]), target, limit=30, name=name, exit_layer=3)
    prompt = len(trace.header.prompt_ids) - 1
    assert set(opened[0].passes) == {prompt + sum(one.drafted + 1 for one in trace.iterations)}


def test_transformers_early_exit_makes_twice_as_many_passes_in_the_early_layers(module_by_module):
    target = fresh(tiny_model("llama", num_hidden_layers=8))
    ids = encode(target, PROMPTS[2])
    passes, hooks = count_passes(target)
    trace = run(ids, target, limit=40, name="early-exit", exit_layer=3, lookahead=4)
    ours, passes[:] = list(passes), [0] * 8
    config = target.model.generation_config
    config.num_assistant_tokens, config.assistant_confidence_threshold = 4, 0.0
    config.num_assistant_tokens_schedule = "constant"
    output = target.model.generate(torch.tensor([ids]), max_new_tokens=40, do_sample=False, assistant_early_exit=3)
    assert tuple(output[0, len(ids) :].tolist()) == trace.output_ids
    print(f"\ntoken-passes through each layer, specviz {ours}, transformers {passes}")
    assert set(ours[:3]) == set(ours[3:])
    assert abs(passes[-1] - ours[-1]) <= 5  # one last round that can be cut differently
    assert all(count > 1.8 * ours[0] for count in passes[:3])


# --- faults ----------------------------------------------------------------------------------------------

def live_bytes():
    """Memory of all tensors that Python can reach, each storage once."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and thing.device.type != "meta":
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


SLACK = 200_000  # bytes; the caches of these runs have 600,000 and more


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gpt2", "opt_350m", "gemma2"])
@pytest.mark.parametrize("fail_at", [3, 5], ids=["drafting", "verifying"])
def test_an_exception_in_mid_iteration_leaves_the_model_as_it_was(family, fail_at, watched):
    """Drafting 3 tokens is 4 runs of the early layers, verifying the fifth; each fails halfway through its layers."""
    target = tiny_model(family)
    ids = encode(target, LONG)[:300]
    method = build(MethodConfig("early-exit", exit_layer=3, lookahead=3), target)
    expected, config = generate(target, ids, 8), target.model.config.to_dict()
    before = live_bytes()
    watched(fail_at)
    with pytest.raises(MemoryError) as raised:
        run_method(ids, method, 8)
    assert live_bytes() <= before + SLACK  # although the exception is still held, with all its frames
    del raised
    assert target.model.config.to_dict() == config
    watched()
    assert list(run_method(ids, method, 8).output_ids) == expected


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
@pytest.mark.parametrize("records", [1, 2, 4])
def test_a_reader_that_stops_leaves_the_model_as_it_was(family, records):
    target = tiny_model(family)
    ids = encode(target, LONG)[:300]
    method = build(MethodConfig("early-exit", exit_layer=3, lookahead=3), target)
    expected, config = generate(target, ids, 12), target.model.config.to_dict()
    before = live_bytes()
    running = decode(ids, method, 12)
    for _ in itertools.islice(running, records):
        pass
    if records > 1:
        assert live_bytes() > before + SLACK  # the cache is there and would be noticed
    running.close()
    assert live_bytes() <= before + SLACK  # although the generator is still held
    assert target.model.config.to_dict() == config
    assert list(run_method(ids, method, 12).output_ids) == expected


def test_two_runs_of_one_model_do_not_disturb_each_other():
    target = tiny_model("llama")
    prompts = [encode(target, prompt) for prompt in PROMPTS[:2]]
    method = build(MethodConfig("early-exit", exit_layer=2, lookahead=4), target)
    runs = [decode(ids, method, 16) for ids in prompts]
    outputs = [[], []]
    for records in itertools.zip_longest(*runs):
        for output, record in zip(outputs, records, strict=True):
            if record is not None and record.kind == "iteration":
                output.extend(record.ids)
    assert outputs == [generate(target, ids, 16) for ids in prompts]


# --- sampling --------------------------------------------------------------------------------------------

TARGET = random_table(3)
CASES = {
    "good exit": (near(TARGET, 4, 0.5), Sampling(1.0, seed=21), 2),
    "top-p": (random_table(8), Sampling(0.8, top_p=0.8, seed=23), 1),
    "bad exit": (random_table(8), Sampling(1.0, seed=22), 3),
}


@pytest.mark.parametrize("case", [*list(CASES)[:2], pytest.param("bad exit", marks=pytest.mark.slow)])
def test_sampled_early_exit_keeps_the_targets_distribution(case):
    exit_table, sampling, lookahead = CASES[case]
    seen = speculate(TARGET, exit_table, sampling, 20_000, lookahead, parts=early_exit)
    assert p_value(seen, exact(TARGET, sampling)) > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("family", DECODERS)
def test_whole_sampled_runs_keep_the_distribution_of_every_family(family):
    """The full loop on a tiny model of the family; every probability from the model's own forward."""
    from tests.decoding.test_sampling import three_tokens

    target = tiny_model(family)
    prompt = encode(target, PROMPTS[0])[:3]
    expected = three_tokens(target, prompt, Sampling(0.7, top_k=3))
    method = build(MethodConfig("early-exit", exit_layer=4, lookahead=2), target)
    seen: dict = {}
    for seed in range(2_000):
        output = run_method(prompt, method, 3, sampling=Sampling(0.7, top_k=3, seed=seed)).output_ids
        seen[output] = seen.get(output, 0) + 1
    assert p_value(seen, expected) > 0.001
