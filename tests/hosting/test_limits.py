"""Limits: one table in the code, one in the README, each overridable by its variable; strangers get the zoo only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from specviz.errors import UsageError
from specviz.models import zoo
from specviz.ui.limits import PREFIX, Limits, public
from specviz.ui.requests import Refused, decode_request, pair_of, probe_request

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_lists_every_limit_with_its_default():
    rows = re.findall(r"^\| `(SPECVIZ_\w+)` \| ([\d ,.]+) \|", README, re.MULTILINE)
    listed = {name: float(value.replace(",", "").replace(" ", "")) for name, value in rows}
    assert listed == {PREFIX + field.name.upper(): float(field.default) for field in fields(Limits)}


def test_every_variable_that_the_code_reads_is_in_the_readme():
    for file in [*(ROOT / "specviz").rglob("*.py"), ROOT / "Dockerfile"]:
        for name in re.findall(r"\bSPECVIZ_[A-Z_]+[A-Z]\b", file.read_text(encoding="utf-8")):
            assert name in README, f"{file.name} names {name}"


@pytest.mark.parametrize("field", fields(Limits), ids=lambda field: field.name)
def test_each_limit_is_set_by_its_variable(field):
    variable = PREFIX + field.name.upper()
    assert getattr(Limits.from_environment({variable: "7"}), field.name) == 7
    assert Limits.from_environment({variable: " "}) == Limits()
    for wrong in ("0", "-1", "many", "nan", "1e99"):
        with pytest.raises(UsageError, match=variable):
            Limits.from_environment({variable: wrong})


def test_a_wrong_variable_is_one_line_at_the_start(monkeypatch):
    monkeypatch.setenv("SPECVIZ_PROMPT", "long")
    done = subprocess.run([sys.executable, "app.py"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("error: SPECVIZ_PROMPT=long:")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False), ({"SPECVIZ_PUBLIC": "1"}, True), ({"SPACE_ID": "a/b"}, True), ({"SPECVIZ_PUBLIC": "0", "SPACE_ID": "a/b"}, False),
        ({"SPECVIZ_PUBLIC": ""}, False), ({"SPECVIZ_PUBLIC": "yes"}, True),
    ],
)  # fmt: skip
def test_public_is_a_space_or_what_the_variable_says(environment, expected):
    assert public(environment) is expected


GOOD = {"pair": "tiny", "method": "prompt-lookup", "prompt": "x"}
SNEAKY = (
    "/etc", "../..", ".", "~", "./assets/models/tiny-plain", "owner/name", "owner/name@main", "file:///etc/passwd", "https://a/b",
    "tiny-layerskip + owner/name", "tiny-layerskip + tiny-draft + tiny-plain", "SMOLLM2@x", "", "   ", 7, None, ["tiny"], "x" * 5000,
)  # fmt: skip


@pytest.mark.parametrize("name", SNEAKY)
def test_strangers_get_models_of_the_zoo_only(monkeypatch, name):
    monkeypatch.setenv("SPECVIZ_PUBLIC", "1")
    for read in (decode_request, probe_request):
        for lang in ("en", "ja"):
            with pytest.raises(Refused) as refusal:
                read({**GOOD, "pair": name}, lang)
            assert refusal.value.field == "pair"


def test_strangers_may_combine_models_of_the_zoo(monkeypatch):
    monkeypatch.setenv("SPECVIZ_PUBLIC", "1")
    request = decode_request({**GOOD, "pair": "tiny-plain + huggingfacetb/smollm2-135m-instruct"})
    assert request.pair == "tiny-plain + smollm2-135m"
    assert pair_of(request.pair).draft == "smollm2-135m"
    assert set(zoo.PAIRS) >= {decode_request({**GOOD, "pair": name}).pair for name in zoo.PAIRS}


def test_at_home_any_id_or_folder_can_be_typed(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECVIZ_PUBLIC", raising=False)
    monkeypatch.delenv("SPACE_ID", raising=False)
    for name in ("owner/name", "owner/name@main", str(tmp_path), f"{tmp_path} + owner/draft"):
        assert decode_request({**GOOD, "pair": name}).pair == name
    with pytest.raises(Refused, match="no such folder"):
        decode_request({**GOOD, "pair": str(tmp_path / "absent")})


def test_what_is_above_a_limit_is_refused():
    limits = Limits(prompt=10, new_tokens=20, probe_tokens=15, lookahead=4)
    decode_request({**GOOD, "prompt": "x" * 10, "limit": 20}, limits=limits)
    for change, field in (({"prompt": "x" * 11}, "prompt"), ({"limit": 21}, "limit"), ({"lookahead": 5}, "lookahead")):
        with pytest.raises(Refused) as refusal:
            decode_request({**GOOD, "limit": 10, **change}, limits=limits)
        assert refusal.value.field == field
    with pytest.raises(Refused):
        probe_request({**GOOD, "limit": 16, "drafter": "early-exit"}, limits=limits)


SESSIONS = """
import sys
sys.path.insert(0, ".")
from specviz.ui import page
from tests.hosting.server import Visitor, free_port
demo = page.build()
page.launch(demo, prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", server_port=free_port())
visitor = Visitor(demo.local_url.rstrip("/"))
for number in range(60):
    visitor.session = f"visitor{number}"
    assert "error" in visitor.ask("pull", {"run": "none", "cursor": 0})
print("kept", len(demo.state_holder.session_data))
demo.close()
"""


def test_sessions_of_visitors_who_left_are_forgotten():
    environment = {**os.environ, "SPECVIZ_WAITING": "4", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", SESSIONS], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "kept 20" in done.stdout.splitlines()
