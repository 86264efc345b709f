"""A saved tiny model, and a cache of the Hub that belongs to the test."""

from __future__ import annotations

import shutil

import pytest

from tests.tiny import tiny_model


@pytest.fixture(scope="session")
def saved_once(tmp_path_factory):
    loaded = tiny_model(chat=True)
    folder = tmp_path_factory.mktemp("saved")
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def saved(saved_once, tmp_path):
    """A folder with a tiny Llama, its own copy for every test that damages it."""
    return shutil.copytree(saved_once, tmp_path / "model")


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    cache = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    return cache


def lay_out(cache, repo: str, folder, commit: str = "a" * 40, reference: str = "main"):
    """Copies a model's folder to where the Hub's cache would hold it."""
    root = cache / ("models--" + repo.replace("/", "--"))
    place = root / "refs" / reference
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(commit)
    return shutil.copytree(folder, root / "snapshots" / commit)
