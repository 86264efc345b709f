import ast
import json
import subprocess
import sys

import pytest

from specviz.analysis.prompts import SETS, load_prompts
from specviz.errors import UsageError


def test_shipped_sets_are_complete_and_different():
    sizes = {name: len(load_prompts(name)) for name in SETS}
    assert sizes == {"open-ended": 20, "summarisation": 20, "code": 20, "japanese": 10}
    everything = load_prompts("all")
    assert len({prompt.id for prompt in everything}) == len({prompt.text for prompt in everything}) == 70
    assert {prompt.task for prompt in everything} == set(SETS)
    for prompt in everything:
        assert prompt.text == prompt.text.strip("\n"), prompt.id


def test_summaries_have_a_real_paragraph_to_work_on():
    for prompt in load_prompts("summarisation"):
        request, paragraph = prompt.text.split("\n\n", 1)
        assert 80 <= len(paragraph.split()) <= 200, prompt.id
        assert len(request.split()) < 15


def test_code_has_requests_for_chat_models_and_beginnings_for_plain_ones():
    assert len(load_prompts("code", form="instruction")) == 10
    beginnings = load_prompts("code", form="prefix")
    assert len(beginnings) == 10
    for prompt in beginnings:
        # A beginning is sound Python up to where it stops: the parser may only miss what is still to come.
        try:
            ast.parse(prompt.text)
        except SyntaxError as error:
            assert error.lineno >= len(prompt.text.splitlines()) - 1, prompt.id


def test_japanese_prompts_are_japanese():
    for prompt in load_prompts("japanese"):
        assert prompt.language == "ja"
        kana = sum("\u3040" <= char <= "\u30ff" for char in prompt.text)
        assert kana > len(prompt.text) / 5, prompt.id


def test_files_of_ones_own(tmp_path):
    plain = tmp_path / "mine.txt"
    plain.write_bytes("One\r\n\nTwo 東京\u2028still two\n".encode())
    assert [prompt.text for prompt in load_prompts(plain)] == ["One", "Two 東京\u2028still two"]
    rows = tmp_path / "mine.jsonl"
    rows.write_text(json.dumps({"text": "a\nb", "form": "prefix", "more": 1}) + "\n", encoding="utf-8")
    (prompt,) = load_prompts(rows)
    assert (prompt.text, prompt.form, prompt.task, prompt.id) == ("a\nb", "prefix", "mine", "mine-1")
    assert load_prompts(rows, form="instruction") == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[]", 'line 2: an object with a "text"'),
        ('{"text": ""}', 'line 2: an object with a "text"'),
        ('{"text": "x", "form": "song"}', "line 2: \"form\" is 'song'"),
        ('{"text": "x", "id": 3}', 'line 2: "id" must be text'),
        ('{"text": "x", "id": "a"}', "line 2: the id 'a' is that of line 1"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, message):
    file = tmp_path / "broken.jsonl"
    file.write_text('{"text": "fine", "id": "a"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        load_prompts(file)


def test_what_is_not_there_or_not_text_is_said(tmp_path):
    with pytest.raises(UsageError, match="no such file, and no set"):
        load_prompts("poems")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(UsageError, match="holds no prompt"):
        load_prompts(tmp_path / "empty.txt")
    (tmp_path / "binary.txt").write_bytes(b"ab\xff")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        load_prompts(tmp_path / "binary.txt")
    with pytest.raises(UsageError, match="choose one of instruction, prefix"):
        load_prompts("code", form="song")


def test_prompts_need_the_standard_library_only():
    code = (
        "import sys, specviz.analysis.prompts as p; p.load_prompts('all');"
        "assert not {'torch', 'numpy', 'pandas', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
