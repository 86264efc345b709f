"""Which pairs the page offers, and what it says must be fetched first."""

from __future__ import annotations

import json

from specviz.commands import fetch as command
from specviz.models import zoo
from specviz.ui import boot
from specviz.ui.shelf import Shelf


def offered(monkeypatch, tmp_path, *shipped):
    monkeypatch.setattr(zoo, "ASSETS", tmp_path / "assets")
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    for name in shipped:
        (tmp_path / "assets" / name).mkdir(parents=True)
        (tmp_path / "assets" / name / "config.json").write_text("{}")
    return {pair["name"]: pair for pair in boot.pairs(Shelf())}


def test_a_shipped_draft_is_offered_before_its_target_is_fetched(monkeypatch, tmp_path):
    pairs = offered(monkeypatch, tmp_path, "smollm2-draft")
    assert pairs["smollm2-draft"]["fetch_bytes"] == zoo.MODELS["smollm2"].download
    assert round(pairs["smollm2-draft"]["fetch_bytes"] / 1e6) == 93 and pairs["smollm2-draft"]["chat"]
    assert pairs["smollm2-draft"]["method"] == "dynamic"


def test_a_draft_is_offered_with_the_settings_that_it_asks_for(monkeypatch, tmp_path):
    pairs = offered(monkeypatch, tmp_path, "smollm2-draft")
    assert pairs["smollm2-draft"]["settings"] == pairs["smollm2"]["settings"] == {}
    asked = {"num_assistant_tokens": 3, "num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0.7}
    (tmp_path / "assets" / "smollm2-draft" / "generation_config.json").write_text(json.dumps(asked))
    pairs = {pair["name"]: pair for pair in boot.pairs(Shelf())}
    assert pairs["smollm2-draft"]["settings"] == {"dynamic": {"lookahead": 3, "threshold": 0.7}}


def test_a_draft_that_is_not_shipped_is_not_offered(monkeypatch, tmp_path):
    pairs = offered(monkeypatch, tmp_path)
    assert "smollm2-draft" not in pairs and "tiny" not in pairs and "smollm2" in pairs


def test_what_a_draft_borrows_from_is_fetched_with_it():
    assert command._models("smollm2-draft") == ["smollm2", "smollm2-draft"]
    assert command._models("pythia") == ["pythia-1.4b", "pythia-160m"]
    assert command._models("smollm2") == ["smollm2"]
