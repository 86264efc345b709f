"""Fixed shapes, on a CPU without capture: the same numbers, lengths and rewinding as the plain lean stream."""

from __future__ import annotations

import pytest
import torch

from specviz.decoding import MethodConfig, build, decode
from specviz.models.graphs import MOST_TOKENS, Direct, StaticStream
from specviz.models.lean import open_lean_stream
from specviz.models.lean_weights import lean_weights
from specviz.trace import Trace
from tests.models.test_lean import assert_same, some_ids
from tests.tiny import tiny_model, tiny_pair


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def static(loaded, room: int = 128) -> StaticStream:
    return StaticStream(loaded, lean_weights(loaded), room, Direct())


@pytest.mark.parametrize("family", ("llama", "mistral", "qwen3"))
def test_fixed_shapes_give_the_plain_streams_numbers(family):
    loaded = tiny_model(family)
    ids = some_ids(70)
    plain, fixed = open_lean_stream(loaded), static(loaded)
    for part in (ids[:1], ids[1:4], ids[4:50], ids[50:51], ids[51:60]):  # 46 are more than are captured
        assert_same(fixed.forward(part), plain.forward(part))
    for stream in (plain, fixed):
        stream.rewind(20)
    assert_same(fixed.forward(ids[20:53], keep=2), plain.forward(ids[20:53], keep=2))
    assert fixed.length == plain.length == 53 and len(ids[20:53]) == MOST_TOKENS


def test_early_layers_remainder_and_head_are_run_apart():
    loaded = tiny_model("llama")
    ids = some_ids(14)
    found = []
    for stream in (open_lean_stream(loaded), static(loaded)):
        stream.forward(ids[:8], keep=0)
        states = torch.cat([stream.run(stream.embed(ids[8:9]), 0, 2), stream.run(stream.embed(ids[9:14]), 0, 2)], dim=1)
        assert stream.layer_length(1) == 14 and stream.layer_length(2) == 8
        found.append(stream.head(stream.run(states, 2, 6)))
    assert_same(found[1], found[0])


def test_what_an_earlier_run_left_behind_is_not_seen():
    loaded = tiny_model("llama")
    stream = static(loaded)
    stream.forward(some_ids(90, seed=3), keep=0)
    stream.close()
    ids = some_ids(12)
    assert_same(stream.forward(ids), open_lean_stream(loaded).forward(ids))


def test_a_stream_of_fixed_room_says_so_when_it_is_full():
    stream = static(tiny_model("llama"), room=16)
    stream.forward(some_ids(16), keep=0)
    with pytest.raises(ValueError, match="room for 16"):
        stream.forward(some_ids(1))


def test_each_shape_is_asked_for_under_one_key_wherever_the_sequence_stands():
    keys = []

    class Noting(Direct):
        def __call__(self, key, function, *inputs):
            keys.append((key, *(tuple(given.shape) for given in inputs)))
            return super().__call__(key, function, *inputs)

    loaded = tiny_model("llama")
    stream = StaticStream(loaded, lean_weights(loaded), 256, Noting())
    for _ in range(30):
        stream.forward(some_ids(3))
        stream.forward(some_ids(1))
    assert len(set(keys)) == 2


@pytest.mark.parametrize("config", [
    MethodConfig("constant", lookahead=4), MethodConfig("early-exit", exit_layer=2, lookahead=3),
], ids=lambda config: config.name)
def test_decodes_the_same_on_fixed_shapes(config, monkeypatch):
    target, draft = tiny_pair("llama")
    prompt = some_ids(9, seed=4).tolist()

    def run():
        return Trace.collect(decode(prompt, build(config, target, draft), 40))

    plain = run()
    monkeypatch.setattr("specviz.models.lean.open_lean_stream", lambda loaded, length=0: static(loaded, length))
    fixed = run()
    assert fixed.header.target["stream"] == "lean+static"
    assert [(i.drafted, i.accepted, i.ids) for i in fixed.iterations] == [
        (i.drafted, i.accepted, i.ids) for i in plain.iterations
    ]
