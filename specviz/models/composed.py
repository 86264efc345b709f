"""A draft that ships its layers alone and borrows embedding and head, and what else it lacks, from its target."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from specviz.errors import UsageError
from specviz.models.locate import bring
from specviz.models.trimmed import trim
from specviz.models.weights import count_weights, weight_files
from specviz.models.zoo import Entry

HEAD_IDS = "head_ids"  # beside the weights: the tokens of a trimmed head


def compose(
    entry: Entry, folder: Path, dtype: torch.dtype, progress=None, download: bool = True
) -> PreTrainedModel:
    """An ordinary model from the shipped layers of `entry` and every other weight of its base, on the CPU.

    The folder's config.json describes the whole draft. Where the folder names the tokens of a trimmed head, the head is
    trimmed to them, unless the entry is to have the whole one. UsageError if a weight is in neither.
    """
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    tied = set(getattr(model, "_tied_weights_keys", None) or ()) if config.tie_word_embeddings else set()
    wanted = set(model.state_dict()) - tied
    own = weight_files(folder, entry.name)
    count_weights(own, entry.name)
    try:
        weights = {key: value for file in own for key, value in load_file(file).items()}
        trimmed = weights.pop(HEAD_IDS, None)
        base = bring(entry.base, progress=progress, download=download)[0]
        for file in weight_files(base, entry.base):
            with safe_open(file, "pt") as shard:
                for key in wanted.difference(weights).intersection(shard.keys()):
                    # The layers have to be the draft's own: those of the base stand at other depths.
                    if ".layers." not in key:
                        weights[key] = shard.get_tensor(key)
    except SafetensorError as error:
        raise UsageError(f"{entry.name}: its weights are damaged: fetch {entry.base} again") from error
    if missing := sorted(wanted.difference(weights)):
        raise UsageError(f"{entry.name}: {missing[0]} is neither in {folder} nor in {entry.base}")
    model.load_state_dict({key: weights[key] for key in wanted}, strict=not tied)
    model.tie_weights()
    if (folder / "generation_config.json").is_file():  # how the draft asks to be used
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    if trimmed is not None and not entry.whole_head:
        trim(model, trimmed.long())
    return model
