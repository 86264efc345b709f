"""What a probe measures is what the drafter does, in bounded memory."""

import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specviz.analysis import readers
from specviz.analysis.branches import Branches, BranchStream, continue_one_by_one, continue_together
from specviz.analysis.measure import measure_probe
from specviz.analysis.probe import load_probe, save_probe
from specviz.analysis.readers import chunk_rows, judge
from specviz.decoding import MethodConfig, Sampling, build, decode
from specviz.errors import UsageError
from specviz.models.loading import encode_prompt
from specviz.models.streams import ids_tensor
from specviz.trace import Trace
from tests.tiny import PROMPTS, tiny_model, tiny_pair


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "opt", "gpt_neox"])
def test_continuations_side_by_side_equal_those_alone(family):
    check_branches(tiny_model(family))


def test_side_by_side_holds_for_sliding_windows():
    over = {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 2}
    check_branches(tiny_model("qwen2", **over))


@torch.inference_mode()
def check_branches(loaded):
    generator = np.random.default_rng(0)
    ids = generator.integers(5, 270, 20).tolist()
    seen = np.array([3, 3, 9, 17, 20, 12])
    token = generator.integers(5, 270, len(seen))
    reach = np.array([6, 1, 0, 4, 6, 3])
    stream = BranchStream(loaded)
    stream.forward(ids_tensor(ids, stream.device), keep=0)
    for last in (2, stream.layers):
        together = Branches(seen, token, reach, frozenset({7}))
        continue_together(stream, together, last, judge, most=4)
        assert stream.length == len(ids)
        alone = together.emptied()
        other = BranchStream(loaded)
        other.forward(ids_tensor(ids, other.device), keep=0)

        def step(tokens, other=other, last=last):
            return other.head(other.run(other.embed(ids_tensor(tokens, other.device)), 0, last)[:, -1:])

        continue_one_by_one(step, other.rewind, alone, judge)
        assert together.ids.tolist() == alone.ids.tolist()
        assert np.abs(together.confidence - alone.confidence).max() < 1e-5
        assert np.abs(together.margin - alone.margin).max() < 1e-3
        assert ((together.ids >= 0).sum(axis=1) <= reach).all()


def test_a_kernel_that_misreads_masks_is_noticed(monkeypatch):
    target, draft = tiny_pair("llama")
    ids = encode_prompt(target, PROMPTS[0])
    right = measure_probe(target, ids, draft, limit=20)
    assert right.info["continuations"] == "together"

    def unmasked(self, kind, hidden, owners, seen, positions):
        return torch.zeros(1, 1, len(owners), self._trunk + len(self._owners), dtype=hidden.dtype)

    monkeypatch.setattr(BranchStream, "_branch_mask", unmasked)
    noticed = measure_probe(target, ids, draft, limit=20)
    assert noticed.info["continuations"] == "one by one"
    assert noticed.wrong_ids.tolist() == right.wrong_ids.tolist()


def test_unknown_architectures_are_continued_one_by_one(monkeypatch):
    target, draft = tiny_pair("llama")
    ids = encode_prompt(target, PROMPTS[0])
    right = measure_probe(target, ids, draft, limit=20)
    monkeypatch.setattr(readers, "SPLIT", {})
    other = measure_probe(target, ids, draft, limit=20)
    assert other.info["continuations"] == "one by one"
    assert other.wrong_ids.tolist() == right.wrong_ids.tolist()
    assert np.abs(other.wrong_confidence - right.wrong_confidence).max() < 1e-5


def test_exits_equal_the_first_layers_as_a_model(tmp_path):
    """The row of an exit layer is what a model made of the first layers says."""
    from tests.tiny import shallow

    target = tiny_model("llama")
    ids = encode_prompt(target, PROMPTS[1])
    exits = measure_probe(target, ids, limit=24, max_lookahead=6, exit_layers=[2, 4])
    assert exits.rows == (2, 4)
    for row, layer in enumerate(exits.rows):
        alone = measure_probe(target, ids, shallow(target, layer), limit=24, max_lookahead=6)
        assert exits.draft_ids[row].tolist() == alone.draft_ids[0].tolist()
        assert np.abs(exits.confidence[row] - alone.confidence[0]).max() < 1e-5
        assert np.abs(exits.target_probability - alone.target_probability).max() < 1e-5
        lines = exits.wrong_index[row][exits.wrong[row]]
        assert exits.wrong_ids[lines].tolist() == alone.wrong_ids[: len(lines)].tolist()
    assert (exits.target_margin > 0).all()
    save_probe(tmp_path / "p.npz", exits)
    again = load_probe(tmp_path / "p.npz")
    assert again.text_of(int(exits.draft_ids[0, 0])) == target.tokenizer.decode([int(exits.draft_ids[0, 0])])
    assert "".join(again.pieces) + again.tail


def test_a_finished_run_can_be_given():
    target, draft = tiny_pair("llama")
    ids = encode_prompt(target, PROMPTS[0])
    run = Trace.collect(decode(ids, build(MethodConfig("dynamic"), target, draft), 16))
    probe = measure_probe(target, ids, draft, trace=run)
    assert probe.output_ids == run.output_ids
    assert "".join(probe.pieces) + probe.tail == run.text
    sampled = Trace.collect(decode(ids, build(MethodConfig("autoregressive"), target), 4, sampling=Sampling(1.0)))
    with pytest.raises(UsageError, match="greedy"):
        measure_probe(target, ids, draft, trace=sampled)
    with pytest.raises(UsageError, match="stopped"):
        measure_probe(target, ids, draft, trace=Trace(run.header, run.iterations))
    with pytest.raises(UsageError, match="another prompt"):
        measure_probe(target, [*ids, 5], draft, trace=run)


@pytest.mark.parametrize("layers", [[0], [6], [3, 9]])
def test_exit_layers_that_do_not_exist(layers):
    with pytest.raises(UsageError, match="choose 1..5"):
        measure_probe(tiny_model("llama"), [5, 6], exit_layers=layers, limit=2)


class LargestTensor(TorchDispatchMode):
    """Remembers the most numbers that any operation's result held."""

    def __init__(self):
        super().__init__()
        self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, (tuple, list)) else [out]:
            # Transposed views of weights are not memory of ours.
            if isinstance(value, torch.Tensor) and value._base is None and func is not torch.ops.aten.t.default:
                self.most = max(self.most, value.numel())
        return out


def test_no_tensor_outgrows_the_bound_at_a_large_vocabulary(monkeypatch):
    """Llama-8B's vocabulary, a bound scaled down 16 times and an output long enough for many chunks."""
    bound = 2**19
    monkeypatch.setattr(readers, "MOST_ELEMENTS", bound)
    vocab = 128_256
    target = tiny_model("llama", vocab_size=vocab, hidden_size=16, intermediate_size=16, num_hidden_layers=4,
                        max_position_embeddings=256)  # fmt: skip
    assert chunk_rows(target, 100) == bound // vocab == 4
    ids = encode_prompt(target, PROMPTS[1])
    run = Trace.collect(decode(ids, build(MethodConfig("autoregressive"), target), 24))
    with LargestTensor() as largest:
        probe = measure_probe(target, ids, trace=run, max_lookahead=4, exit_layers=[1, 3])
    assert probe.wrong.sum() > 10
    assert bound / 2 < largest.most <= bound
    assert largest.most < len(probe.rows) * probe.length * vocab / 10


def test_chunks_of_a_llama_8b_are_as_documented(monkeypatch):
    class Config:
        num_attention_heads = 32

    class Loaded:
        vocab_size = 128_256
        model = type("Model", (), {"config": Config})

    assert chunk_rows(Loaded, 1024) == 65
    assert chunk_rows(Loaded, 100_000) == 2
    assert chunk_rows(Loaded, 10**9) == 1
    Loaded.vocab_size = 304
    assert chunk_rows(Loaded, 64) == 256
    assert math.isclose(2**23 * 4 / 2**20, 32)
