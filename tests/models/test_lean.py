"""The lean layers: the same numbers as the model's own forward, on models that they may stand for, and only there."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch

from specviz.decoding import MethodConfig, Sampling, build, decode
from specviz.models import forward, streams
from specviz.models.lean import LeanStream, open_lean_stream
from specviz.models.loading import wrap
from specviz.models.streams import open_split_stream, open_stream
from specviz.trace import Trace
from tests.tiny import fresh, tiny_model, tiny_pair

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def some_ids(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, 300, (count,), generator=torch.Generator().manual_seed(seed))


def public_logits(loaded, ids: torch.Tensor) -> torch.Tensor:
    return loaded.model(ids[None]).logits[0]


def assert_same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Within 1e-5 of the size of the logits, which the tiny models spread wide."""
    assert (ours - theirs).abs().max() <= 1e-5 * max(1.0, float(theirs.abs().max()))


def lean(loaded, length: int = 0) -> LeanStream:
    stream = open_lean_stream(loaded, length)
    assert isinstance(stream, LeanStream)
    return stream


@pytest.mark.parametrize("family", FAMILIES)
def test_equals_the_public_forward_in_steps_blocks_and_after_rewinding(family):
    loaded = tiny_model(family)
    ids = some_ids(60)
    expected = public_logits(loaded, ids)
    stream = lean(loaded)
    parts = [stream.forward(ids[:1]), stream.forward(ids[1:2]), stream.forward(ids[2:7]), stream.forward(ids[7:30])]
    assert_same(torch.cat(parts), expected[:30])
    stream.rewind(11)
    assert_same(torch.cat([stream.forward(ids[11:12]), stream.forward(ids[12:60])]), expected[11:])
    assert stream.length == 60


@pytest.mark.parametrize("over", [
    {"tie_word_embeddings": True}, {"num_key_value_heads": 4}, {"num_key_value_heads": 1}, {"attention_bias": True},
    {"mlp_bias": True}, {"head_dim": 32}, {"rope_parameters": LLAMA3}, {"hidden_act": "gelu"},
    {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
], ids=str)
def test_equals_the_public_forward_for_every_variant_of_llama(over):
    config = copy.deepcopy(tiny_model("llama").model.config)
    for key, value in over.items():
        setattr(config, key, value)
    torch.manual_seed(1)
    loaded = wrap(type(tiny_model("llama").model)(config), tiny_model("llama").tokenizer, "variant")
    ids = some_ids(40, seed=2)
    expected = public_logits(loaded, ids)
    stream = lean(loaded, length=40)
    assert_same(torch.cat([stream.forward(ids[:30]), stream.forward(ids[30:35]), stream.forward(ids[35:36]),
                           stream.forward(ids[36:])]), expected)


def test_layers_that_slide_and_layers_that_do_not_are_mixed():
    kinds = ("sliding_attention", "full_attention") * 3
    loaded = tiny_model("qwen2", layer_types=kinds, use_sliding_window=True, sliding_window=9, max_window_layers=0)
    ids = some_ids(40)
    expected = public_logits(loaded, ids)
    stream = lean(loaded)
    assert_same(torch.cat([stream.forward(ids[:20]), stream.forward(ids[20:21]), stream.forward(ids[21:])]), expected)


def test_a_long_prefill_is_run_in_chunks_and_the_cache_grows():
    loaded = tiny_model("llama", max_position_embeddings=1024)
    ids = some_ids(700)
    stream = lean(loaded)
    logits = stream.forward(ids, keep=300)  # more than the last chunk
    assert_same(logits, public_logits(loaded, ids)[-300:])
    assert stream.forward(ids[:3], keep=0).shape == (0, loaded.vocab_size)
    assert stream.length == 703


def test_layers_run_apart_as_the_generic_stream_runs_them():
    loaded = tiny_model("llama")
    ids = some_ids(12)
    ours, generic = lean(loaded), forward.GenericSplitStream(loaded)
    for stream in (ours, generic):
        stream.forward(ids[:8], keep=0)
    early = [stream.run(stream.embed(ids[8:]), 0, 2) for stream in (ours, generic)]
    assert_same(early[0], early[1])
    assert ours.layer_length(1) == 12 and ours.layer_length(2) == 8
    with pytest.raises(ValueError, match="rewind first"):
        ours.run(early[0], 0, 6)
    late = [stream.head(stream.run(states, 2, 6)) for stream, states in zip((ours, generic), early, strict=True)]
    assert_same(late[0], late[1])
    ours.run(ours.embed(ids[:1]), 0, 2)
    with pytest.raises(ValueError, match="holds only"):
        ours.rewind(13)
    ours.rewind(10)
    assert {ours.layer_length(layer) for layer in range(6)} == {10}


@pytest.mark.parametrize("config", [
    MethodConfig("autoregressive"), MethodConfig("dynamic", lookahead=6), MethodConfig("constant", lookahead=3),
    MethodConfig("prompt-lookup"), MethodConfig("early-exit", exit_layer=3, lookahead=3),
    MethodConfig("early-exit-dynamic", exit_layer=2),
], ids=lambda config: config.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_decodes_what_the_public_forward_decodes(family, config, monkeypatch):
    target, draft = tiny_pair(family)
    prompt = some_ids(9, seed=4).tolist()
    runs = {}
    for sampling in (Sampling(), Sampling(temperature=0.8, top_p=0.9, seed=3)):
        for kind in ("lean", "generic"):
            with monkeypatch.context() as patch:
                if kind == "generic":
                    patch.setattr("specviz.models.lean.lean_weights", lambda loaded: None)
                trace = Trace.collect(decode(prompt, build(config, target, draft), 40, sampling=sampling))
            assert (trace.header.target["stream"] == "lean") == (kind == "lean")
            runs[kind] = [(i.drafted, i.accepted, i.ids) for i in trace.iterations]
        assert runs["lean"] == runs["generic"]


def test_the_weights_are_held_once_and_the_model_stays_usable():
    loaded = fresh(tiny_model("llama"))
    ids = some_ids(20)
    before = public_logits(loaded, ids)
    state = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    lean(loaded).close()
    storages = {weight.untyped_storage().data_ptr(): weight.untyped_storage().nbytes()
                for weight in loaded.model.parameters()}
    assert sum(storages.values()) == sum(value.nbytes for value in state.values())
    assert all(torch.equal(value, state[name]) for name, value in loaded.model.state_dict().items())
    assert_same(public_logits(loaded, ids), before)


def test_a_model_that_is_trained_on_is_followed():
    loaded = fresh(tiny_model("llama"))
    lean(loaded)
    with torch.no_grad():
        for weight in loaded.model.parameters():
            weight.mul_(1.1)
    ids = some_ids(20)
    assert_same(lean(loaded).forward(ids), public_logits(loaded, ids))


def test_a_model_whose_weights_were_replaced_is_arranged_anew():
    loaded = fresh(tiny_model("llama"))
    lean(loaded)
    with torch.no_grad():
        loaded.model.load_state_dict(tiny_model("llama", seed=5).model.state_dict())
        loaded.model.to(torch.float64)
    loaded = wrap(loaded.model, loaded.tokenizer, "cast")
    ids = some_ids(20)
    assert_same(lean(loaded).forward(ids), public_logits(loaded, ids))


def test_low_precision_stays_as_close_as_the_public_forward_does():
    exact = tiny_model("llama")
    loaded = fresh(exact)
    loaded.model.to(torch.bfloat16)
    loaded = wrap(loaded.model, loaded.tokenizer, "half")
    ids = some_ids(30)
    public = (public_logits(loaded, ids).float() - public_logits(exact, ids)).abs().mean()
    stream = lean(loaded)
    ours = torch.cat([stream.forward(ids[:20]), stream.forward(ids[20:21]), stream.forward(ids[21:])]).float()
    assert (ours - public_logits(exact, ids)).abs().mean() <= 1.5 * public


def test_a_model_that_nobody_holds_is_freed():
    loaded = fresh(tiny_model("llama"))
    lean(loaded).close()
    model = weakref.ref(loaded.model)
    del loaded
    gc.collect()
    assert model() is None


def test_hooked_patched_and_unknown_models_run_on_their_own_modules():
    loaded = fresh(tiny_model("llama"))
    assert open_stream(loaded).kind == open_split_stream(loaded).kind == "lean"
    calls = []
    hook = loaded.model.model.layers[2].register_forward_hook(lambda *_: calls.append(1))
    assert open_stream(loaded).kind == "public" and open_split_stream(loaded).kind == "split"
    open_stream(loaded).forward(some_ids(3))
    assert calls
    hook.remove()
    loaded.model.model.layers[1].forward = loaded.model.model.layers[1].forward
    assert open_stream(loaded).kind == "public"
    del loaded.model.model.layers[1].__dict__["forward"]
    assert open_stream(loaded).kind == "lean"
    loaded.model(torch.tensor([[1, 2, 3]]), output_hidden_states=True)
    assert loaded.model.model.layers[0]._forward_hooks  # left behind, and harmless
    assert open_stream(loaded).kind == "lean"
    assert streams.open_stream(tiny_model("gpt2")).kind == "public"
    assert open_split_stream(tiny_model("opt")).kind == "split"


@pytest.mark.parametrize(("family", "key_heads"), [("llama", 4), ("llama", 2), ("llama", 1), ("qwen2", 2)])
def test_the_compiled_layers_are_used_and_equal_the_loop(family, key_heads, monkeypatch):
    loaded = fresh(tiny_model(family, num_key_value_heads=key_heads))
    ids = some_ids(40, seed=5)
    compiled = lean(loaded)
    assert compiled._scripted is not None
    monkeypatch.setattr("specviz.models.lean_weights.compiled", lambda layers: None)
    plain = lean(fresh(loaded))
    assert plain._scripted is None
    found = []
    for stream in (compiled, plain):
        stream.forward(ids[:9], keep=0)
        logits = [stream.forward(ids[9:10]), stream.forward(ids[10:15], keep=2), stream.forward(ids[15:23])]
        early = stream.run(stream.embed(ids[23:26]), 0, 2)
        logits.append(stream.head(stream.run(early, 2, 6)))
        stream.rewind(20)
        found.append(torch.cat([*logits, stream.forward(ids[20:21])]))
    assert_same(found[0], found[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_that_has_decoded_is_saved_as_it_was_loaded(family, tmp_path):
    loaded, untouched = fresh(tiny_model(family)), fresh(tiny_model(family))
    for _ in range(2):  # made anew after a change: one hook, not two
        assert open_stream(loaded).kind == "lean"
        loaded.model.model.layers[0].self_attn.q_proj.weight.data = loaded.model.model.layers[0].self_attn.q_proj.weight.data.clone()
    loaded.model.save_pretrained(tmp_path)
    again = type(loaded.model).from_pretrained(tmp_path)
    for (name, saved), (_, expected) in zip(again.named_parameters(), untouched.model.named_parameters(), strict=True):
        assert torch.equal(saved, expected), name
    assert open_stream(loaded).kind == open_stream(fresh(loaded)).kind == "lean"
    assert len(loaded.model._state_dict_hooks) == 1


def test_sequences_that_change_their_rotation_with_their_length_are_left_to_the_model():
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    config = copy.deepcopy(tiny_model("llama").model.config)
    config.rope_parameters = rope
    loaded = wrap(type(tiny_model("llama").model)(config), tiny_model("llama").tokenizer, "dynamic rope")
    assert open_stream(loaded).kind == "public"
