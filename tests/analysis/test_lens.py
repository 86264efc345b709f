"""The layer lens says what an exit behind each layer would say."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from specviz.analysis import readers
from specviz.analysis.lens import LensTable, lens, load_lens, save_lens
from specviz.errors import UsageError
from tests.decoding.reference import encode, generate, run
from tests.tiny import PROMPTS, tiny_model

# By hand: three layers, four positions.
HAND = LensTable(
    model="hand", ids=(5, 6, 7, 8), pieces=("a", " b", "", "京"),
    tokens=np.array([[1, 2, 3, 4], [1, 9, 3, 5], [1, 2, 9, 4]], np.int32),
    probabilities=np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [1.0, 0.9, 0.8, 0.7]], np.float32),
    texts={1: "one", 2: "two", 3: "three", 4: "four", 5: "<b>", 9: " \n"}, prompt=2,
)  # fmt: skip


def test_what_is_derived_from_a_table():
    assert HAND.layers == 3
    assert HAND.equal.tolist() == [[True, True, False, True], [True, False, False, False], [True] * 4]
    assert HAND.agreement.tolist() == [0.75, 0.25, 1.0]
    assert HAND.settled.tolist() == [1, 3, 3, 3]  # layer 1 was right at the second and fourth place, layer 2 was not
    assert HAND.text(2, 3) == "<b>" and HAND.text(3, 0) == "one"
    part = HAND.window(1, 3)
    assert (part.ids, part.pieces, part.prompt, sorted(part.texts)) == ((6, 7), (" b", ""), 1, [2, 3, 9])
    first = HAND.records()[0]
    assert first == {
        "layer": 1, "position": 0, "after": "a", "token": 1, "text": "one", "probability": 0.1, "final": True
    }  # fmt: skip
    assert len(HAND.records()) == 12


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "opt_350m"])
def test_every_layer_is_read_as_an_exit_behind_it_would_be(family):
    """Against the hidden states that the model itself gives out, put through its norm and head."""
    loaded = tiny_model(family)
    ids = encode(loaded, PROMPTS[2])
    table = lens(loaded, ids)
    decoder, head = loaded.model.get_decoder(), loaded.model.get_output_embeddings()
    with torch.no_grad():
        out = loaded.model(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
        for layer, hidden in enumerate(out.hidden_states[1:-1]):
            norm = getattr(decoder, "norm", None) or getattr(decoder, "final_layer_norm", None)
            hidden = hidden if norm is None else norm(hidden)
            project = getattr(decoder, "project_out", None)
            rows = head(hidden if project is None else project(hidden))[0].softmax(dim=-1)
            assert table.tokens[layer].tolist() == rows.argmax(dim=-1).tolist()
            assert np.allclose(table.probabilities[layer], rows.max(dim=-1).values, atol=1e-5)
        assert table.tokens[-1].tolist() == out.logits[0].argmax(dim=-1).tolist()


def test_a_lens_over_an_output_foretells_the_drafts_of_early_exit():
    target = tiny_model("llama")
    prompt = encode(target, PROMPTS[0])
    output = generate(target, prompt, 20)
    table = lens(target, [*prompt, *output], prompt=len(prompt))
    trace = run(prompt, target, limit=20, name="early-exit", exit_layer=3, lookahead=1)
    for one in trace.iterations:
        if one.drafted:
            assert one.draft[0].id == table.tokens[2, one.start - 1]
            assert bool(one.accepted) == bool(table.equal[2, one.start - 1])


def test_chunks_give_the_same_table_and_bound_the_logits(monkeypatch):
    from specviz.models import streams

    loaded = tiny_model("llama")
    ids = encode(loaded, "a b c d e f g h i j k l m n o p" * 4)
    whole, widest = lens(loaded, ids), []
    opener = streams.open_split_stream

    def watched(*args, **kwargs):
        stream = opener(*args, **kwargs)
        head = stream.head
        stream.head = lambda hidden: (widest.append(hidden.shape[1]), head(hidden))[1]
        return stream

    monkeypatch.setattr(streams, "open_split_stream", watched)
    monkeypatch.setattr(readers, "MOST_ROWS", 7)
    seen = []
    parts = lens(loaded, ids, progress=lambda done, of: seen.append((done, of)))
    assert max(widest) == 7
    assert seen[0] == (7, len(ids)) and seen[-1] == (len(ids), len(ids))
    assert (whole.tokens == parts.tokens).all()
    assert np.allclose(whole.probabilities, parts.probabilities, atol=1e-5)


def test_a_table_is_saved_and_loads_without_torch(tmp_path):
    path = tmp_path / "lens.json"
    save_lens(path, HAND)
    again = load_lens(path)
    assert again.as_dict() == HAND.as_dict()
    json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda word: pytest.fail(word))
    code = f"import sys; from specviz.analysis.lens import load_lens; load_lens({str(path)!r}); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"kind":"lens","schema":1}', "[" * 100_000, '{"kind":"lens","schema":2}'])
def test_damaged_files_are_refused_in_one_line(tmp_path, text):
    path = tmp_path / "lens.json"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        load_lens(path)
    assert "\n" not in str(raised.value) and "lens.json" in str(raised.value)
    with pytest.raises(UsageError, match="No such file"):
        load_lens(tmp_path / "absent.json")


def test_what_cannot_be_read_is_refused():
    loaded = tiny_model("llama", max_position_embeddings=32)
    with pytest.raises(UsageError, match="empty"):
        lens(loaded, [])
    with pytest.raises(UsageError, match="33 tokens.*takes 32"):
        lens(loaded, [7] * 33)
    with pytest.raises(UsageError, match="encoder-decoder"):
        lens(tiny_model("t5"), [7])
    with pytest.raises(ValueError, match="columns"):
        LensTable("x", (1,), ("a",), HAND.tokens, HAND.probabilities)
