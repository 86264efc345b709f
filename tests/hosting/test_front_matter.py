"""The README's front matter, which makes the repository a Space, against what is installed."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from specviz.models import zoo

ROOT = Path(__file__).parents[2]


def front_matter() -> dict:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return yaml.safe_load(re.match(r"---\n(.*?)\n---\n", text, re.DOTALL).group(1))


def requirements() -> dict[str, Requirement]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    return {requirement.name: requirement for requirement in found}


def test_it_is_a_gradio_space_of_the_installed_version():
    data = front_matter()
    assert data["sdk"] == "gradio"
    assert data["sdk_version"] == importlib.metadata.version("gradio")
    assert Version(data["sdk_version"]) in requirements()["gradio"].specifier


def test_python_is_one_that_every_dependency_takes():
    version = front_matter()["python_version"]
    assert version == "3.12"
    for name in requirements():
        takes = importlib.metadata.metadata(name).get("Requires-Python") or ">=3"
        assert Version(version + ".9") in Requirement(f"x{takes}").specifier, name


def test_it_asks_for_no_hardware_and_names_what_a_space_shows():
    data = front_matter()
    assert not {"hardware", "suggested_hardware", "suggested_storage"} & set(data)
    assert (ROOT / data["app_file"]).is_file()
    assert 0 < len(data["short_description"]) <= 60
    assert data["license"] == "apache-2.0" and (ROOT / "LICENSE").is_file()
    assert data["tags"] and data["title"] and data["emoji"]
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {data["colorFrom"], data["colorTo"]} <= colours


def test_its_models_are_models_of_the_zoo():
    known = {entry.where for entry in zoo.MODELS.values() if entry.source == "hub"}
    models = front_matter()["models"]
    assert models and set(models) <= known


def test_the_dockerfile_takes_the_same_python():
    assert f"python:{front_matter()['python_version']}-slim" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
