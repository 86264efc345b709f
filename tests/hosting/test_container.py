"""The Dockerfile: what it names exists, and its steps work in a clean folder as user 1000."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosting.container import ROOT, context, ignored, parse
from tests.hosting.server import free_port

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STEPS = parse(TEXT)


def words(name: str) -> list[str]:
    return [step.rest for step in STEPS if step.word == name]


def test_it_takes_the_base_and_torch_by_argument():
    assert STEPS[0].word == "ARG" and STEPS[0].rest == "BASE=python:3.12-slim"
    assert words("FROM") == ["${BASE}"]
    assert "TORCH_FROM=" in words("ARG")
    assert "://" not in TEXT.replace("http://127.0.0.1:7860", ""), "an address of somebody's server"


def test_it_runs_as_user_1000_on_port_7860():
    assert any(re.fullmatch(r"useradd .*--uid 1000 user", rest) for rest in words("RUN"))
    assert words("USER") == ["user"] and words("EXPOSE") == ["7860"]
    environment = " ".join(words("ENV"))
    for setting in ("GRADIO_SERVER_NAME=0.0.0.0", "GRADIO_SERVER_PORT=7860", "GRADIO_ANALYTICS_ENABLED=False", "HF_HUB_DISABLE_TELEMETRY=1"):
        assert setting in environment
    order = [step.word for step in STEPS]
    last_run_as_root = max(i for i, step in enumerate(STEPS) if step.word == "RUN" and "pip install" in step.rest)
    assert last_run_as_root < order.index("USER") < order.index("CMD")


def test_its_command_and_its_health_check_are_lists_of_words():
    assert [step.listed for step in STEPS if step.word == "CMD"] == [["python", "app.py"]]
    check = words("HEALTHCHECK")[0]
    assert "7860/gradio_api/info" in check and "--start-period" in check and '["python", "-c"' in check


def test_what_it_copies_exists_and_belongs_to_the_user():
    files = context()
    for rest in words("COPY"):
        *sources, _ = [part for part in rest.split() if not part.startswith("--")]
        for source in sources:
            assert source == "." or any(path == source or path.startswith(source + "/") for path in files), source
        assert "--chown=user" in rest or sources == ["requirements.txt"]


def test_layers_that_change_seldom_come_first():
    order = [(step.word, step.rest) for step in STEPS]
    install = next(i for i, (word, rest) in enumerate(order) if word == "RUN" and "pip install" in rest)
    fetch = next(i for i, (word, rest) in enumerate(order) if word == "RUN" and "specviz fetch smollm2" in rest)
    everything = next(i for i, (word, rest) in enumerate(order) if word == "COPY" and rest.endswith(". ."))
    assert install < fetch < everything
    assert ("COPY", "requirements.txt .") in order[:install]


def test_nothing_secret_and_nothing_needless_goes_in():
    files = context()
    for wanted in ("app.py", "README.md", "LICENSE", "requirements.txt", "specviz/ui/page.py", "assets/page/app.js", "assets/models/tiny-draft/config.json"):
        assert wanted in files, wanted
    assert not [path for path in files if path.startswith((".git/", ".ci/", "tests/", "runs/")) or "__pycache__" in path]
    assert not re.search(r"(TOKEN|SECRET|PASSWORD|KEY)\s*=", TEXT)
    assert ignored(".env", [".env"]) and ignored("a/b/__pycache__/c.pyc", ["**/__pycache__"])
    assert not [path for path in files if Path(path).name in (".env", ".netrc", "id_rsa")]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_its_steps_work_in_a_clean_folder(tmp_path):
    if os.getuid() == 0:
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", f"from tests.hosting.container import *; main(Path({str(tmp_path)!r}), {free_port()})"],
        cwd=ROOT, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "healthy after" in done.stdout and "ended with status 0" in done.stdout
