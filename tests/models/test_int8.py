"""8-bit weights: close to the exact model, the same for a token alone and in a block, and named as what they are."""

from __future__ import annotations

import pytest
import torch

from specviz.decoding import MethodConfig, build, check_run, decode
from specviz.errors import UsageError
from specviz.models.int8 import quantised
from specviz.models.streams import PublicStream, open_stream
from specviz.trace import Trace
from tests.models.test_lean import some_ids
from tests.tiny import fresh, tiny_model


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("family", ("llama", "qwen2", "opt"))
def test_a_token_has_the_same_logits_alone_and_in_a_block(family):
    loaded = quantised(fresh(tiny_model(family)))
    ids = some_ids(30)
    whole = loaded.model(ids[None]).logits[0]
    for stream in (PublicStream(loaded), open_stream(loaded)):
        parts = torch.cat([stream.forward(ids[:1]), stream.forward(ids[1:9]), stream.forward(ids[9:])])
        # Rounding to 8 bits may fall on either side of a half: nearly all agree to the last bit, none is far.
        assert (parts - whole).abs().mean() <= 0.02 * whole.abs().mean()
    exact = tiny_model(family).model(ids[None]).logits[0]
    assert (whole - exact).abs().mean() <= 0.1 * exact.abs().mean()


def test_speculation_with_8_bits_is_checked_against_8_bits():
    loaded = quantised(fresh(tiny_model("llama")))
    assert loaded.name.endswith(":int8")
    method = build(MethodConfig("early-exit", exit_layer=2, lookahead=3), loaded)
    trace = Trace.collect(decode(some_ids(6).tolist(), method, 40))
    assert trace.header.target["name"] == loaded.name and trace.header.target["stream"] == "lean+int8"
    check = check_run(trace, loaded)
    assert check.identical or check.gap < 0.2


def test_the_weights_take_a_quarter():
    loaded = fresh(tiny_model("llama"))
    before = sum(p.nbytes for layer in loaded.model.model.layers for p in layer.mlp.parameters())
    quantised(loaded)
    after = sum(b.nbytes for layer in loaded.model.model.layers for b in layer.mlp.buffers())
    assert after < 0.35 * before


def test_what_cannot_be_quantised_is_said():
    loaded = fresh(tiny_model("llama"))
    loaded.model.to(torch.bfloat16)
    from specviz.models.loading import wrap

    with pytest.raises(UsageError, match="float32"):
        quantised(wrap(loaded.model, loaded.tokenizer, "half"))
