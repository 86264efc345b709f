"""Packed weights: the same products, only where they pay, and quietly left out where they cannot be had."""

from __future__ import annotations

import pytest
import torch

from specviz.models import packing
from specviz.models.lean import open_lean_stream
from specviz.models.packing import Packer
from tests.models.test_lean import assert_same, public_logits, some_ids
from tests.tiny import fresh, tiny_model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def test_a_packed_product_is_the_plain_one(monkeypatch):
    monkeypatch.setattr(packing, "_faster_from", lambda plain, packed, width: 4)
    weight, bias = torch.randn(512, 500), torch.randn(500)
    calls = []

    def plain(x):
        calls.append(len(x))
        return torch.addmm(bias, x, weight)

    packer = Packer(packing._SMALLEST_MODEL, CPU, torch.float32)
    product = packer.product(weight, bias, plain)
    if not packer.used:
        pytest.skip("this build of torch has no packed products")
    calls.clear()
    for rows in (1, 3, 4, 9):
        x = torch.randn(rows, 512)
        torch.testing.assert_close(product(x), torch.addmm(bias, x, weight), rtol=1e-4, atol=1e-3)
    assert calls == [1, 3]


@pytest.mark.parametrize("fault", ["no operators", "switched off", "slower", "another result", "no memory"])
def test_without_a_gain_the_plain_product_stays(fault, monkeypatch):
    if fault == "no operators":
        monkeypatch.setattr(packing, "_operators", lambda: None)
    elif fault == "switched off":
        monkeypatch.setenv(packing.SWITCH, "never")
    elif fault == "slower":
        monkeypatch.setattr(packing, "_faster_from", lambda plain, packed, width: None)
    elif fault == "another result":
        monkeypatch.setattr(packing, "_pack", lambda weight, bias: lambda x: x @ weight + 1)
    else:
        monkeypatch.setattr(packing, "available", lambda device: 1000)
    weight = torch.randn(512, 500)

    def plain(x):
        return x @ weight

    packer = Packer(packing._SMALLEST_MODEL, CPU, torch.float32)
    assert packer.product(weight, None, plain) is plain and not packer.used


def test_a_lean_stream_on_packed_weights_says_so_and_is_equal(monkeypatch):
    monkeypatch.setattr(packing, "_FEWEST_WEIGHTS", 1)
    monkeypatch.setattr(packing, "_SMALLEST_MODEL", 1)
    monkeypatch.setattr(packing, "_faster_from", lambda plain, packed, width: 2)
    loaded = fresh(tiny_model("qwen2"))
    stream = open_lean_stream(loaded)
    if stream.kind != "lean+packed":
        pytest.skip("this build of torch has no packed products")
    ids = some_ids(30)
    assert_same(torch.cat([stream.forward(ids[:1]), stream.forward(ids[1:])]), public_logits(loaded, ids))
    # A copy does not follow its weights: they are packed anew.
    for weight in loaded.model.parameters():
        weight.mul_(1.1)
    assert_same(open_lean_stream(loaded).forward(ids), public_logits(loaded, ids))
