"""The lens command prints, writes and draws."""

import json

import pytest

from specviz.__main__ import main
from specviz.analysis.lens import load_lens, save_lens
from specviz.commands.lens import lines, summary
from tests.analysis.test_lens import HAND
from tests.tiny import tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model in a folder, as a user would name it."""
    path = tmp_path_factory.mktemp("model")
    loaded = tiny_model("llama", seed=41)  # of its own: a model that has decoded may keep its weights packed
    loaded.model.save_pretrained(path)
    loaded.tokenizer.save_pretrained(path)
    return str(path)


def test_marks_stand_in_for_colour():
    plain = lines(HAND, 80, colour=False)
    assert "\x1b" not in "".join(plain)
    assert [line.split()[1] for line in plain[3:6]] == ["3", "2", "1"]  # the last layer on top
    assert plain[5].rstrip() == "layer 1  =one     10 =two     20  three   30 =four    40"
    coloured = "\n".join(lines(HAND, 80, colour=True))
    assert "\x1b[32m\x1b[2mone" in coloured and "=one" not in coloured


def test_blocks_fit_the_terminal_also_with_wide_characters():
    narrow = lines(HAND, 24, colour=False)
    assert sum(line.startswith("behind") for line in narrow) == 4
    assert "京" in "".join(narrow) and max(len(line) for line in narrow[1:]) <= 24
    assert summary(HAND).splitlines()[-1] == "half of all positions are settled at layer 3 of 3"


def test_a_text_is_read_written_and_drawn(folder, tmp_path, capsys):
    out, picture = tmp_path / "lens.json", tmp_path / "lens.html"
    where = ["--out", str(out), "--figure", str(picture)]
    assert main(["lens", "--target", folder, "--prompt", "The cat sat", "--max-new-tokens", "5", *where]) == 0
    printed = capsys.readouterr().out
    assert "layer 6" in printed and "exit layer 5  " in printed
    table = load_lens(out)
    assert len(table.ids) == table.prompt + 5 and table.layers == 6
    assert table.tokens[-1, table.prompt - 1 : -1].tolist() == list(table.ids[table.prompt :])  # greedy
    assert "plotly" in picture.read_text(encoding="utf-8")[:5000].lower()
    assert main(["lens", "--from", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ids"] == list(table.ids)


def test_errors_are_one_line(folder, tmp_path, capsys):
    save_lens(tmp_path / "good.json", HAND)
    for arguments, words in (
        (["--target", folder], "no text"),
        (["--target", folder, "--prompt", " "], "empty"),
        (["--target", folder, "--prompt-file", str(tmp_path / "absent")], "No such file"),
        (["--from", str(tmp_path / "absent.json")], "No such file"),
        (["--from", str(tmp_path / "good.json"), "--last", "0"], "choose 1 or more"),
        (["--from", str(tmp_path / "good.json"), "--out", str(tmp_path / "no" / "x.json")], "No such file"),
    ):
        assert main(["lens", *arguments]) == 2
        *progress, error = capsys.readouterr().err.strip().splitlines()
        assert all(line.startswith("loading") for line in progress)
        assert error.startswith("error: ") and words in error, error
