"""A trimmed head gives the whole head's logits for its tokens and -inf for the others, whatever runs the layers."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from specviz.decoding import MethodConfig, Sampling, build, check_run, decode
from specviz.decoding.drafters import AssistantDrafter
from specviz.models import zoo
from specviz.models.forward import GenericSplitStream
from specviz.models.int8 import quantised
from specviz.models.lean import open_lean_stream
from specviz.models.loading import load_model, load_pair, wrap
from specviz.models.streams import PublicStream
from specviz.models.trimmed import trim
from specviz.trace import Trace
from tests.tiny import fresh, shallow, tiny_model

IDS = torch.tensor([2, 5, 17, 40, 41, 100, 140, 200, 201, 260, 280])


def trimmed(loaded, ids=IDS):
    model = fresh(loaded)
    trim(model.model, ids)
    return wrap(model.model, model.tokenizer, "trimmed")


@pytest.mark.parametrize("stream", [PublicStream, GenericSplitStream, open_lean_stream])
def test_logits_are_those_of_the_whole_head_or_minus_infinity(stream):
    whole = tiny_model("llama")
    few = trimmed(whole)
    assert few.vocab_size == whole.vocab_size
    ids = torch.tensor([1, 50, 60, 70])
    with torch.inference_mode():
        wanted, found = (PublicStream(whole).forward(ids), stream(few).forward(ids))
    assert torch.allclose(found[:, IDS], wanted[:, IDS], atol=1e-4)
    outside = torch.ones(whole.vocab_size, dtype=torch.bool)
    outside[IDS] = False
    assert torch.isinf(found[:, outside]).all() and found.shape == wanted.shape


@pytest.mark.parametrize("eight", [False, True])
def test_the_compiled_layers_know_trimmed_heads_in_either_precision(eight, monkeypatch):
    few = trimmed(tiny_model("llama"))
    few = quantised(few) if eight else few
    ids = torch.tensor([1, 50, 60, 70, 12, 13, 14])
    with torch.inference_mode():
        compiled = open_lean_stream(few)
        assert compiled._scripted is not None and compiled.kind == ("lean+int8" if eight else "lean")
        loop = open_lean_stream(few)
        loop._scripted = None
        found = []
        for stream in (compiled, loop):
            stream.forward(ids[:3], keep=0)
            found.append(torch.cat([stream.forward(ids[3:4]), stream.forward(ids[4:6]), stream.head(stream.run(stream.embed(ids[6:]), 0, stream.layers))]))
        assert torch.equal(found[0].isinf(), found[1].isinf())
        inside = found[1].isfinite()
        apart = (found[0] - found[1])[inside].abs().mean()
        assert apart <= (0.02 if eight else 1e-5) * found[1][inside].abs().mean()


@pytest.mark.parametrize("eight", [False, True])
@pytest.mark.parametrize("vocabulary", [301, 201, 141])
def test_a_whole_draft_is_what_single_steps_over_a_trimmed_head_give(eight, vocabulary):
    few = trimmed(tiny_model("llama"))
    few = quantised(few) if eight else few
    ids = torch.tensor([1, 50, 60, 70])
    vocabulary = min(vocabulary, few.vocab_size)
    with torch.inference_mode():
        at_once, single = open_lean_stream(few), open_lean_stream(few)
        for stream in (at_once, single):
            stream.forward(ids[:-1], keep=0)
        tokens, rows, _ = at_once.draft(ids[-1:], 5, 0.0, [], vocabulary=vocabulary)
        feed = ids[-1:]
        for token, row in zip(tokens, rows, strict=True):
            logits = single.forward(feed, keep=1)[0, :vocabulary]
            assert torch.equal(row, logits) and int(token) == int(logits.argmax()) and int(token) in IDS
            feed = token.view(1)
    assert len(tokens) == 5 and rows.shape == (5, vocabulary)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_draft_with_a_trimmed_head_changes_no_token_and_drafts_no_other(temperature, monkeypatch):
    target = tiny_model("llama")
    draft = trimmed(shallow(target, 2))
    rows = []
    propose = AssistantDrafter.propose

    def watched(self, *words):
        proposal = propose(self, *words)
        rows.extend(pick.probabilities for pick in proposal.picks)
        return proposal

    monkeypatch.setattr(AssistantDrafter, "propose", watched)
    method = build(MethodConfig("constant", lookahead=3), target, draft)
    trace = Trace.collect(decode([1, 50, 60, 70], method, 40, sampling=Sampling(temperature, seed=3)))
    drafted = {token.id for iteration in trace.iterations for token in iteration.draft}
    assert drafted and drafted <= set(IDS.tolist())
    if temperature:
        outside = torch.ones(target.vocab_size, dtype=torch.bool)
        outside[IDS] = False
        assert all(float(row[outside].sum()) == 0.0 and abs(float(row.sum()) - 1) < 1e-4 for row in rows)
    else:
        assert check_run(trace, target).identical


def test_layers_and_head_can_be_in_8_bits():
    exact = trimmed(tiny_model("llama"))
    ids = torch.tensor([1, 50, 60])
    with torch.inference_mode():
        wanted = PublicStream(exact).forward(ids)
    few = quantised(exact)
    assert few.model.lm_head.weight.dtype == torch.int8 and few.vocab_size == wanted.shape[-1]
    with torch.inference_mode():
        lean, public = open_lean_stream(few).forward(ids), PublicStream(few).forward(ids)
    assert torch.allclose(lean[:, IDS], public[:, IDS], atol=1e-4)
    assert torch.isfinite(lean).sum() == 3 * len(IDS) and torch.equal(torch.isfinite(lean), torch.isfinite(wanted))
    assert (lean[:, IDS] - wanted[:, IDS]).abs().mean() <= 0.1 * wanted[:, IDS].abs().mean()


def test_a_composed_draft_ships_the_tokens_of_its_head(saved, tmp_path, monkeypatch):
    target = tiny_model("llama", chat=True)
    draft = shallow(target, 2)
    weights = {key: value.clone() for key, value in draft.model.state_dict().items() if ".layers." in key}
    folder = tmp_path / "assets" / "few"
    folder.mkdir(parents=True)
    draft.model.config.save_pretrained(folder)
    save_file({**weights, "head_ids": IDS.to(torch.int32)}, folder / "model.safetensors")
    (folder / "generation_config.json").write_text('{"num_assistant_tokens": 3, "assistant_confidence_threshold": 0.7}')
    monkeypatch.setattr(zoo, "ASSETS", tmp_path / "assets")
    for name, options in (("few", {}), ("few-whole", {"whole_head": True}), ("few-8", {"int8": True})):
        entry = zoo.Entry(name, "composed", "few", "llama", "Apache-2.0", 1, "text", base=str(saved), **options)
        monkeypatch.setitem(zoo.MODELS, name, entry)
    _, few = load_pair(str(saved), "few", device="cpu")
    _, whole = load_pair(str(saved), "few-whole", device="cpu")
    asked = MethodConfig.from_generation_config(few.model.generation_config)
    assert (asked.name, asked.lookahead, asked.threshold) == ("dynamic", 3, 0.7)
    ids = torch.tensor([1, 50, 60])
    with torch.inference_mode():
        trimmed_logits, all_logits = (open_lean_stream(model).forward(ids) for model in (few, whole))
    assert torch.allclose(trimmed_logits[:, IDS], all_logits[:, IDS], atol=1e-4)
    assert torch.isfinite(trimmed_logits).sum() == 3 * len(IDS) and torch.isfinite(all_logits).all()
    target, eight = load_pair(str(saved), "few-8", device="cpu")
    assert eight.name == "few-8:int8" and few.name == "few" and target.model.lm_head.weight.dtype == torch.float32
    trace = Trace.collect(decode([1, 50, 60, 70], build(MethodConfig("dynamic", lookahead=4), target, eight), 40))
    assert check_run(trace, target).identical and trace.header.draft["name"] == "few-8:int8"
    assert load_pair(str(saved), "few-8", device="cpu", dtype="bfloat16")[1].name == "few-8"  # 8 bits are for float32


def test_where_there_are_no_8_bit_products_the_draft_stays_as_it_is_and_that_is_told(saved, tmp_path, monkeypatch):
    draft = shallow(tiny_model("llama", chat=True), 2)
    folder = tmp_path / "assets" / "few"
    folder.mkdir(parents=True)
    draft.model.config.save_pretrained(folder)
    save_file({key: value.clone() for key, value in draft.model.state_dict().items() if ".layers." in key}, folder / "model.safetensors")
    monkeypatch.setattr(zoo, "ASSETS", tmp_path / "assets")
    entry = zoo.Entry("few-8", "composed", "few", "llama", "Apache-2.0", 1, "text", base=str(saved), int8=True)
    monkeypatch.setitem(zoo.MODELS, "few-8", entry)

    def lacking(*_):
        raise RuntimeError("no engine")

    monkeypatch.setattr(torch, "_make_per_channel_quantized_tensor", lacking)
    said = []
    loaded = load_model("few-8", device="cpu", progress=lambda stage, *_: said.append(stage))
    assert loaded.name == "few-8" and loaded.model.model.layers[0].mlp.up_proj.weight.dtype == torch.float32
    assert any("few-8 stays in 32 bits" in stage and "no engine" in stage for stage in said)
