"""A probe is data: what it holds is checked, it saves to one file and loads without torch."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from specviz.analysis.probe import Probe, load_probe, parse_probe, save_probe
from specviz.errors import UsageError


def small_probe(**over) -> Probe:
    """Two exit layers over four tokens: layer 1 is right at 0 and 1, layer 2 everywhere but at 2."""
    draft_ids = np.array([[5, 6, 9, 9], [5, 6, 9, 2]], np.int32)
    wrong_index = np.array([[-1, -1, 0, 1], [-1, -1, 2, -1]], np.int32)
    shape = draft_ids.shape
    fields = {
        "kind": "early-exit", "target": "t", "draft": None, "prompt": "hé\ud83d", "prompt_ids": (1, 3),
        "output_ids": (5, 6, 7, 2), "pieces": ("a", " b", "", "</s>"), "tail": "", "eos_ids": (2,), "limit": 8, "end": "eos",
        "offset": 2, "layers": 3, "rows": (1, 2), "max_lookahead": 3, "draft_context": 100,
        "draft_ids": draft_ids,
        "confidence": np.full(shape, 0.5, np.float32),
        "margin": np.ones(shape, np.float32),
        "target_probability": np.full(4, 0.5, np.float32),
        "target_margin": np.ones(4, np.float32),
        "wrong_index": wrong_index,
        "wrong_ids": np.array([[7, 8], [2, -1], [4, 2]], np.int32),
        "wrong_confidence": np.full((3, 2), 0.25, np.float32),
        "wrong_margin": np.ones((3, 2), np.float32),
        "texts": {5: "a", 9: "\n"},
        "info": {"seconds": 0.5},
    }  # fmt: skip
    return Probe(**{**fields, **over})


def test_runs_of_right_drafts_are_the_oracle_lookahead():
    assert small_probe().run.tolist() == [[2, 1, 0, 0, 0], [2, 1, 0, 1, 0]]


def test_a_draft_is_right_tokens_then_the_wrong_one_then_its_continuation():
    ids, confidence = small_probe().drafted(0, 1, 4)
    assert ids.tolist() == [6, 9, 7, 8]
    assert confidence.tolist() == [0.5, 0.5, 0.25, 0.25]
    assert small_probe().drafted(1, 3, 2)[0].tolist() == [2, -1]


def test_saves_to_one_file_and_loads_the_same(tmp_path):
    path = tmp_path / "a.npz"
    probe = small_probe()
    save_probe(path, probe)
    again = load_probe(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    for name in Probe.__dataclass_fields__:
        before, after = getattr(probe, name), getattr(again, name)
        same = np.array_equal(before, after) if isinstance(before, np.ndarray) else before == after
        assert same, name


def test_loads_without_torch(tmp_path):
    save_probe(tmp_path / "a.npz", small_probe())
    code = (
        "import sys; from specviz.analysis.probe import load_probe; import specviz.analysis.simulate;"
        f"load_probe({str(tmp_path / 'a.npz')!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "change",
    [
        {"draft_ids": np.zeros((2, 3), np.int32)},
        {"pieces": ("a",)},
        {"kind": "tea leaves"},
        {"limit": 3},
        {"max_lookahead": 4},
        {"wrong_index": np.full((2, 4), -1, np.int32)},
        {"wrong_index": np.array([[-1, -1, 0, 1], [-1, -1, 3, -1]], np.int32)},
    ],
)
def test_shapes_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError, match="probe: "):
        small_probe(**change)


def test_damaged_files_give_one_line(tmp_path):
    path = tmp_path / "a.npz"
    save_probe(path, small_probe())
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    for data in (b"", b"hello", whole[: len(whole) // 2], whole[:-1], b"\x80\x04."):
        with pytest.raises(UsageError, match="not a probe file"):
            parse_probe(data)
    for _ in range(60):
        broken = bytearray(whole)
        for at in generator.integers(0, len(whole), 4):
            broken[at] = generator.integers(0, 256)
        try:
            parse_probe(bytes(broken))
        except UsageError as error:
            assert "\n" not in str(error)
    with pytest.raises(UsageError, match=r"nowhere\.npz: No such file"):
        load_probe(tmp_path / "nowhere.npz")


def test_a_newer_schema_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("specviz.analysis.probe.SCHEMA", 9)
    save_probe(tmp_path / "a.npz", small_probe())
    monkeypatch.undo()
    with pytest.raises(UsageError, match="schema 9 is newer"):
        load_probe(tmp_path / "a.npz")


def test_rows_are_found_by_exit_layer():
    probe = small_probe()
    assert probe.row_of(2) == 1
    with pytest.raises(UsageError, match="exit layer 7 was not probed; choose one of 1..2"):
        probe.row_of(7)
    assert replace(probe, kind="assistant", rows=(0, 1)).row_of(None) == 0
