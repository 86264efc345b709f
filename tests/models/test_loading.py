"""Folders, the Hub's cache, damage, placement and prompts; the Hub itself is in test_hub.py."""

from __future__ import annotations

import json
import struct

import pytest
import torch

from specviz.errors import UsageError
from specviz.models import memory, zoo
from specviz.models.loading import encode_prompt, load_model, load_pair, pick_device, pick_dtype, wrap
from tests.models.conftest import lay_out
from tests.tiny import BOS, EOS, fresh, shallow, tiny_model, tiny_pair, tiny_tokenizer


def greedy(loaded, text="The cat", count=12):
    ids = torch.tensor([encode_prompt(loaded, text, chat=False)])
    return loaded.model.generate(ids, do_sample=False, max_new_tokens=count)[0].tolist()


def refusal(name, **options) -> str:
    with pytest.raises(UsageError) as caught:
        load_model(str(name), **options)
    said = str(caught.value)
    assert "\n" not in said and len(said) < 400
    return said


def test_a_saved_folder_loads_as_the_same_model(saved):
    loaded = load_model(str(saved), device="cpu")
    assert greedy(loaded) == greedy(tiny_model(chat=True))
    assert (loaded.device, loaded.dtype) == (torch.device("cpu"), torch.float32)
    assert (loaded.context, loaded.vocab_size, loaded.is_encoder_decoder) == (512, 304, False)
    assert loaded.eos_ids == {EOS} and loaded.revision is None and loaded.name == str(saved)
    assert not loaded.model.training and not any(p.requires_grad for p in loaded.model.parameters())


def test_precision_can_be_chosen(saved):
    assert load_model(str(saved), device="cpu", dtype="bf16").model.dtype == torch.bfloat16


def test_progress_is_told(saved):
    told = []
    load_model(str(saved), device="cpu", progress=lambda *words: told.append(words))
    assert told and all(unit == "seconds" for *_, unit in told)


def test_a_hub_cache_loads_offline_by_the_real_name(saved, hub_cache):
    lay_out(hub_cache, "facebook/layerskip-llama3.2-1B", saved, commit="c" * 40)
    loaded = load_model("layerskip-llama3.2-1b", device="cpu")
    assert loaded.revision == "c" * 40 and greedy(loaded) == greedy(tiny_model(chat=True))
    assert load_model("facebook/layerskip-llama3.2-1B", device="cpu").revision == "c" * 40
    assert zoo.find("layerskip-llama3.2-1b").here and not zoo.find("llama-3.1-8b").here


def test_a_revision_can_be_named(saved, hub_cache):
    lay_out(hub_cache, "some/model", saved, commit="d" * 40, reference="v1")
    assert load_model("some/model@v1", device="cpu").revision == "d" * 40


def test_weights_converted_by_the_bot_load_offline(saved, hub_cache):
    old = lay_out(hub_cache, "facebook/opt-125m", saved, commit="e" * 40)
    (old / "model.safetensors").rename(old / "pytorch_model.bin")
    lay_out(hub_cache, "facebook/opt-125m", saved, commit="f" * 40, reference="refs/pr/7")
    assert load_model("opt-125m", device="cpu").revision == "f" * 40


def test_every_eos_id_is_known():
    loaded = fresh(tiny_model())
    loaded.model.generation_config.eos_token_id = [5, 9]
    loaded.model.config.eos_token_id = 7
    assert wrap(loaded.model, loaded.tokenizer, "x").eos_ids == {5, 7, 9, EOS}


def test_models_with_relative_positions_take_any_length():
    assert tiny_model("t5").context >= 100_000
    assert tiny_model("t5").is_encoder_decoder


# Damage and absence


def test_pickled_weights_are_refused(saved):
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    assert "save_pretrained" in refusal(saved)


def test_a_folder_without_weights_or_config_says_so(saved):
    (saved / "model.safetensors").unlink()
    assert "no model.safetensors" in refusal(saved)
    (saved / "config.json").unlink()
    assert "config.json" in refusal(saved)


def test_a_missing_folder_and_a_misspelt_name_say_so(saved):
    assert "no such folder" in refusal(saved / "absent")
    assert "smollm2" in refusal("smolm2")
    assert "is a file" in refusal(saved / "config.json")


@pytest.mark.parametrize("keep", [0, 5, 100, 20_000])
def test_truncated_weights_are_found_out(saved, keep):
    file = saved / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    assert "damaged" in refusal(saved)


def test_garbage_is_no_safetensors(saved):
    (saved / "model.safetensors").write_bytes(b"PK\x03\x04" + bytes(range(256)) * 40)
    assert "damaged" in refusal(saved)
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (saved / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    assert "incomplete" in refusal(saved)


def test_a_missing_shard_is_named(saved):
    weights = {"model.embed_tokens.weight": "model.safetensors", "x": "model-00002-of-00002.safetensors"}
    (saved / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    assert "model-00002-of-00002.safetensors" in refusal(saved)
    (saved / "model.safetensors.index.json").write_text("{")
    assert "damaged" in refusal(saved)


def test_a_config_that_does_not_fit_the_weights_is_refused(saved):
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "hidden_size": 128}))
    assert str(saved) in refusal(saved)


def test_repository_code_is_never_run(saved):
    config = json.loads((saved / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}, "architectures": ["Own"]}
    (saved / "config.json").write_text(json.dumps(config))
    (saved / "own.py").write_text(f"open({str(saved / 'ran')!r}, 'w')\nclass Own: pass\n")
    assert "never run" in refusal(saved)
    assert not (saved / "ran").exists()
    (saved / "config.json").write_text(json.dumps({"model_type": "own"}))
    assert "'own'" in refusal(saved)
    (saved / "config.json").write_text("{")
    assert "damaged" in refusal(saved)


def test_a_damaged_or_missing_tokenizer_says_so(saved):
    (saved / "tokenizer.json").write_text("{}")
    assert "token" in refusal(saved)
    (saved / "tokenizer.json").unlink()
    (saved / "tokenizer_config.json").unlink()
    assert "token" in refusal(saved)


# Placement


def test_a_device_or_precision_that_is_not_there_is_refused():
    for device in ("cuda:93", "gpu", "tpu"):
        with pytest.raises(UsageError, match="device"):
            pick_device(device)
    with pytest.raises(UsageError, match="float32"):
        pick_dtype("int3", torch.device("cpu"))
    assert pick_dtype(None, torch.device("cuda")) == torch.bfloat16


def test_a_model_that_cannot_fit_is_refused_before_anything_is_fetched(hub_cache):
    memory.check_fits("x", 1000, torch.device("cpu"), 4)
    with pytest.raises(UsageError, match="smaller model"):
        memory.check_fits("x", 10**15, torch.device("cpu"), 4)
    if memory.available(torch.device("cpu")) < 60e9:
        assert "GB" in refusal("layerskip-llama2-70b", device="cpu")


def test_limits_of_a_container_count(tmp_path):
    group = tmp_path / "cg" / "box"
    group.mkdir(parents=True)
    for name, text in {
        "memory.max": "1000000\n",
        "memory.current": "700000\n",
        "memory.stat": "anon 5\ninactive_file 200000\n",
    }.items():
        (group / name).write_text(text)
    (tmp_path / "own").write_text("0::/box\n")
    assert memory._cgroup_v2(tmp_path / "cg", tmp_path / "own") == 500_000
    (group / "memory.max").write_text("max\n")
    assert memory._cgroup_v2(tmp_path / "cg", tmp_path / "own") is None
    old = tmp_path / "v1"
    old.mkdir()
    (old / "memory.limit_in_bytes").write_text("1000\n")
    (old / "memory.usage_in_bytes").write_text("400\n")
    (old / "memory.stat").write_text("total_inactive_file 100\n")
    assert memory._cgroup_v1(old) == 700


def test_a_model_spread_over_devices_is_described_and_decodes(saved, tmp_path):
    from accelerate import dispatch_model

    loaded = load_model(str(saved), device="cpu")
    whole = greedy(loaded)
    layers = {f"model.layers.{i}": "cpu" if i < 3 else "disk" for i in range(6)}
    places = {"model.embed_tokens": "disk", **layers, "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    spread = dispatch_model(loaded.model, places, main_device="cpu", offload_dir=str(tmp_path / "offload"))
    again = wrap(spread, loaded.tokenizer, "spread")
    assert again.device == torch.device("cpu") and again.vocab_size == 304
    assert greedy(again) == whole


def test_a_draft_may_borrow_embedding_and_head_from_its_target(saved, tmp_path, monkeypatch):
    from safetensors.torch import save_file

    target = load_model(str(saved), device="cpu")
    wanted = shallow(target, 2)
    layers = {key: value for key, value in wanted.model.state_dict().items() if ".layers." in key}
    folder = tmp_path / "assets" / "lean-draft"
    folder.mkdir(parents=True)
    wanted.model.config.save_pretrained(folder)
    save_file(layers, folder / "model.safetensors", metadata={"format": "pt"})
    entry = zoo.Entry("lean-draft", "composed", "lean-draft", "llama", "Apache-2.0", 1, "text", base=str(saved))
    monkeypatch.setattr(zoo, "ASSETS", tmp_path / "assets")
    monkeypatch.setitem(zoo.MODELS, "lean-draft", entry)
    _, draft = load_pair(str(saved), "lean-draft", device="cpu")
    assert greedy(draft) == greedy(wanted) and entry.here
    del layers["model.layers.1.mlp.up_proj.weight"]
    save_file(layers, folder / "model.safetensors", metadata={"format": "pt"})
    assert "model.layers.1.mlp.up_proj.weight" in refusal("lean-draft")


# Pairs and prompts


def test_a_pair_loads_and_must_share_its_tokenizer(saved, saved_once, tmp_path):
    target, draft = load_pair(str(saved), str(saved_once), device="cpu")
    assert draft.vocab_size == target.vocab_size
    assert load_pair(str(saved), device="cpu")[1] is None
    text = (saved / "tokenizer.json").read_text()
    assert '"q":' in text
    core = json.loads(text)
    vocab = core["model"]["vocab"]
    vocab["q"], vocab["z"] = vocab["z"], vocab["q"]
    (saved / "tokenizer.json").write_text(json.dumps(core))
    with pytest.raises(UsageError) as caught:
        load_pair(str(saved), str(saved_once), device="cpu")
    assert str(saved) in str(caught.value) and str(saved_once) in str(caught.value)


def test_prompts_take_the_chat_template_or_the_special_tokens():
    loaded = tiny_model(chat=True)
    tokenizer = loaded.tokenizer
    chat = encode_prompt(loaded, "hi")
    assert tokenizer.decode(chat) == "<s><|user|>hi</s><|assistant|>"
    assert encode_prompt(loaded, "hi", chat=False)[0] == BOS
    assert encode_prompt(tiny_model(), "hi") == encode_prompt(loaded, "hi", chat=False)
    assert encode_prompt(tiny_model("t5"), "hi")[-1] == EOS


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_an_empty_prompt_is_refused(text):
    for chat in (True, False):
        with pytest.raises(UsageError, match="type a prompt"):
            encode_prompt(tiny_model(chat=True), text, chat)


def test_tiny_pairs_agree_partly():
    target, draft = tiny_pair(likeness=0.9)
    ids = torch.tensor([greedy(target, count=60)])
    agree = (target.model(ids).logits.argmax(-1) == draft.model(ids).logits.argmax(-1)).float().mean()
    assert 0.05 < agree < 0.95
    assert tiny_pair(likeness=0.9)[1] is draft
    assert tiny_tokenizer().decode(tiny_tokenizer()("東京 🙂").input_ids) == "東京 🙂"
