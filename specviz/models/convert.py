"""GGUF -> safetensors: ``python -m specviz.models.convert WEIGHTS.gguf FOLDER``; fetching runs it as a process."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path


def convert(weights: Path, folder: Path) -> None:
    """Write the model of a GGUF file, dequantised to float32, and its tokenizer as a folder that loads at once."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    quantised = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(**place)
    # A dequantised model refuses to be saved; a fresh one with its weights does not.
    config = type(quantised.config).from_dict(quantised.config.to_dict())
    config.dtype = torch.float32
    for leftover in ("quantization_config", "_name_or_path"):
        if hasattr(config, leftover):
            delattr(config, leftover)
    with torch.device("meta"):
        model = type(quantised)(config)
    model.load_state_dict(quantised.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def leave_with_parent() -> None:
    """Ends this process soon after the one that started it was killed; nobody would want its work."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    leave_with_parent()
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
