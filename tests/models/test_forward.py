"""The forward that is split by layers equals the model's own, for every family."""

from __future__ import annotations

import copy

import pytest
import torch
from accelerate import disk_offload, dispatch_model
from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

from specviz.errors import UsageError
from specviz.models.families import SPLIT
from specviz.models.forward import open_split_stream
from specviz.models.loading import wrap
from specviz.models.streams import layer_count
from tests.tiny import FAMILIES, fresh, tiny_model, tiny_tokenizer

DECODERS = [family for family in FAMILIES if family != "t5"]
# More than twice the tiny models' sliding windows; the first ids are no special tokens.
IDS = torch.tensor([(37 * place * place + 11 * place) % 290 + 5 for place in range(48)])
VARIANTS = {
    "qwen2 with windows": ("qwen2", {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 3}),
    "mistral without windows": ("mistral", {"sliding_window": None}),
    "gemma2 squashing little": ("gemma2", {"final_logit_softcapping": 4.0}),
    "gpt_neox in sequence": ("gpt_neox", {"use_parallel_residual": False}),
    "tied": ("llama", {"tie_word_embeddings": True}),
}


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def full(loaded, ids=IDS):
    """The model's own logits (n, V), without any cache."""
    return loaded.model(ids[None], use_cache=False).logits[0]


def close_to(got, wanted):
    """Within 1e-5 of the logits' spread (the tiny models' logits are four times as wide as a unit normal's)."""
    assert got.shape == wanted.shape
    difference = float((got - wanted).abs().max() / wanted.std())
    assert difference <= 1e-5, difference


def cases():
    for family in DECODERS:
        yield pytest.param(family, {}, id=family)
    for name, (family, over) in VARIANTS.items():
        yield pytest.param(family, over, id=name.replace(" ", "-"))


def test_every_row_of_the_table_has_a_tiny_model():
    assert {tiny_model(family).model.config.model_type for family in DECODERS} == set(SPLIT)


@pytest.mark.parametrize("family, over", cases())
def test_split_forward_equals_the_models_own(family, over):
    loaded = tiny_model(family, **over)
    wanted = full(loaded)
    stream = open_split_stream(loaded)
    close_to(stream.forward(IDS), wanted)  # at once
    stream.rewind(0)
    close_to(torch.cat([stream.forward(IDS[at : at + 1]) for at in range(len(IDS))]), wanted)  # token by token
    stream.rewind(17)
    parts = [stream.forward(IDS[17:30]), stream.forward(IDS[30:31]), stream.forward(IDS[31:])]  # in blocks
    close_to(torch.cat(parts), wanted[17:])
    assert stream.length == len(IDS)
    stream.rewind(40)
    close_to(stream.forward(IDS[40:], keep=3), wanted[-3:])
    assert stream.forward(IDS[:4], keep=0).shape == (0, loaded.vocab_size)
    assert stream.length == len(IDS) + 4


@pytest.mark.parametrize("family, over", cases())
def test_layers_run_apart_as_in_early_exit(family, over):
    """Early layers draft token by token, the others follow in one block; refused positions are taken back."""
    loaded = tiny_model(family, **over)
    wanted = full(loaded)
    stream = open_split_stream(loaded)
    for exit_layer in (1, 3, stream.layers - 1):
        stream.rewind(0)
        stream.forward(IDS[:20], keep=0)
        place = 20
        for drafted, kept in ((4, 5), (3, 1), (1, 2), (5, 3), (6, 7)):
            wrong = IDS.flip(0)[place + kept : place + drafted + 1]  # drafts that the target refuses
            ids = torch.cat((IDS[place : place + kept], wrong))
            states = [stream.run(stream.embed(ids[at : at + 1]), 0, exit_layer) for at in range(len(ids))]
            assert stream.layer_length(0) == place + len(ids)
            assert stream.layer_length(exit_layer) == place
            hidden = stream.run(torch.cat(states, dim=1), exit_layer, stream.layers)
            close_to(stream.head(hidden)[:kept], wanted[place : place + kept])
            place += kept
            stream.rewind(place)
            assert {stream.layer_length(layer) for layer in range(stream.layers)} == {place}


def identity_patched(loaded, ids, exit_layer):
    """The same split without table, cache or own masks: skipped layers of the public forward are made identities.

    Returns the logits of an exit after `exit_layer` layers and those of the remaining layers over its states.
    """
    model = copy.deepcopy(loaded.model)
    layer_class = next(iter(model._no_split_modules))
    layers = next(
        module
        for module in model.get_decoder().modules()
        if isinstance(module, torch.nn.ModuleList) and type(module[0]).__name__ == layer_class
    )
    own = [layer.forward for layer in layers]
    for layer in layers[exit_layer:]:
        layer.forward = lambda hidden, *args, **kwargs: hidden
    seen = []
    layers[exit_layer].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    early = model(ids[None], use_cache=False).logits[0]
    for index, layer in enumerate(layers):
        layer.forward = own[index] if index >= exit_layer else lambda hidden, *args, **kwargs: hidden
    layers[0].forward = lambda hidden, *args, **kwargs: seen[0]
    return early, model(ids[None], use_cache=False).logits[0]


@pytest.mark.parametrize("family, over", cases())
def test_a_second_implementation_without_the_table_agrees(family, over):
    loaded = tiny_model(family, **over)
    stream = open_split_stream(loaded)
    for exit_layer in (1, 4):
        early, late = identity_patched(loaded, IDS, exit_layer)
        stream.rewind(0)
        states = [stream.run(stream.embed(IDS[at : at + 6]), 0, exit_layer) for at in range(0, len(IDS), 6)]
        states = torch.cat(states, dim=1)
        close_to(stream.head(states), early)
        close_to(stream.head(stream.run(states, exit_layer, stream.layers)), late)


def spread_over_cpu_and_disk(model, folder):
    """What device_map="auto" does on a machine without room: the first layers in memory, the rest on disk."""
    names = {module: name for name, module in model.named_modules()}
    layers = getattr(model.get_decoder(), SPLIT[model.config.model_type].layers)
    places = {}
    for part in model.get_decoder().children():
        if part is not layers:
            places[names[part]] = "cpu"
    for index, layer in enumerate(layers):
        places[names[layer]] = "cpu" if index < 2 else "disk"
    places[names[model.get_output_embeddings()]] = "disk"
    dispatch_model(model, places, main_device="cpu", offload_dir=folder)


@pytest.mark.parametrize("family", ["llama", "opt_350m", "gemma3_text", "gpt_neox", "gpt2"])
def test_layers_on_different_devices(family, tmp_path):
    """Dispatched by accelerate: weights lie elsewhere and are brought in for each call."""
    plain = tiny_model(family)
    wanted = full(plain)
    for place in (
        lambda model: spread_over_cpu_and_disk(model, tmp_path / "some"),
        lambda model: disk_offload(model, tmp_path / "all", execution_device="cpu"),
    ):
        loaded = fresh(plain)
        place(loaded.model)
        loaded = wrap(loaded.model, loaded.tokenizer, "offloaded")
        assert loaded.device == torch.device("cpu")
        assert any(weight.device.type == "meta" for weight in loaded.model.parameters())
        stream = open_split_stream(loaded)
        close_to(stream.forward(IDS[:40]), wanted[:40])
        states = stream.run(stream.embed(IDS[40:]), 0, 2)
        close_to(stream.head(stream.run(states, 2, stream.layers)), wanted[40:])


def test_an_unknown_architecture_names_the_known_ones():
    config = GPTBigCodeConfig(vocab_size=304, n_embd=32, n_layer=2, n_head=2, n_positions=64)
    loaded = wrap(GPTBigCodeForCausalLM(config), tiny_tokenizer(), "tiny-bigcode")
    for call in (open_split_stream, layer_count):
        with pytest.raises(UsageError, match="tiny-bigcode.*gpt_bigcode.*Llama.*OPT.*draft model") as raised:
            call(loaded)
        assert "\n" not in str(raised.value)
    with pytest.raises(UsageError, match="encoder-decoder"):
        open_split_stream(tiny_model("t5"))


def test_misuse_is_refused_instead_of_giving_wrong_numbers():
    stream = open_split_stream(tiny_model("llama"))
    stream.forward(IDS[:8], keep=0)
    stream.run(stream.embed(IDS[8:10]), 0, 2)
    with pytest.raises(ValueError, match="different numbers of positions"):
        stream.run(stream.embed(IDS[10:11]), 0, 4)
    with pytest.raises(ValueError, match="layers 0..5"):
        stream.run(stream.embed(IDS[10:11]), 0, 7)
    with pytest.raises(ValueError, match="holds only 8"):
        stream.rewind(9)
    stream.rewind(8)
    stream.close()
    stream.close()


def test_a_failure_inside_a_layer_is_undone_by_rewinding():
    loaded = fresh(tiny_model("llama"))
    stream = open_split_stream(loaded)
    stream.forward(IDS[:20], keep=0)

    def fail(*args):
        raise RuntimeError("out of memory")

    hook = loaded.model.model.layers[3].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError):
        stream.forward(IDS[20:25])
    hook.remove()
    assert stream.layer_length(2) == 25 and stream.layer_length(3) == 20
    stream.rewind(20)
    close_to(stream.forward(IDS[20:]), full(loaded)[20:])
