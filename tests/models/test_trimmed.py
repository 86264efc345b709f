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
from specviz.models.loading import load_pair, wrap
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


def test_the_layers_can_be_in_8_bits_beside_it():
    few = quantised(trimmed(tiny_model("llama")))
    ids = torch.tensor([1, 50, 60])
    with torch.inference_mode():
        lean, public = open_lean_stream(few).forward(ids), PublicStream(few).forward(ids)
    assert torch.allclose(lean[:, IDS], public[:, IDS], atol=1e-4)


def test_a_composed_draft_ships_the_tokens_of_its_head(saved, tmp_path, monkeypatch):
    target = tiny_model("llama", chat=True)
    draft = shallow(target, 2)
    weights = {key: value.clone() for key, value in draft.model.state_dict().items() if ".layers." in key}
    folder = tmp_path / "assets" / "few"
    folder.mkdir(parents=True)
    draft.model.config.save_pretrained(folder)
    save_file({**weights, "head_ids": IDS.to(torch.int32)}, folder / "model.safetensors")
    monkeypatch.setattr(zoo, "ASSETS", tmp_path / "assets")
    for name, whole in (("few", False), ("few-whole", True)):
        entry = zoo.Entry(name, "composed", "few", "llama", "Apache-2.0", 1, "text", base=str(saved), whole_head=whole)
        monkeypatch.setitem(zoo.MODELS, name, entry)
    _, few = load_pair(str(saved), "few", device="cpu")
    _, whole = load_pair(str(saved), "few-whole", device="cpu")
    ids = torch.tensor([1, 50, 60])
    with torch.inference_mode():
        trimmed_logits, all_logits = (open_lean_stream(model).forward(ids) for model in (few, whole))
    assert torch.allclose(trimmed_logits[:, IDS], all_logits[:, IDS], atol=1e-4)
    assert torch.isfinite(trimmed_logits).sum() == 3 * len(IDS) and torch.isfinite(all_logits).all()
