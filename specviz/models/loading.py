"""From a name to a model that is ready to decode: device, precision, tokenizer, stop tokens, context length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from specviz.errors import UsageError
from specviz.models.pairing import check_pair

__all__ = ["LoadedModel", "Progress", "check_pair", "encode_prompt", "load_model", "load_pair", "wrap"]

# (stage, done, total or None where it is not known, unit: "bytes" or "seconds")
Progress = Callable[[str, float, "float | None", str], None]

# Models with relative positions (T5) take any length; a number that no prompt reaches stands for that.
UNBOUNDED = 1_000_000


@dataclass(frozen=True)
class LoadedModel:
    """A model and what decoding has to know about it. The model is in eval mode and takes no gradients."""

    name: str  # name in the zoo, or the id or folder as it was given
    revision: str | None
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    device: torch.device  # where input ids go
    dtype: torch.dtype
    eos_ids: frozenset[int]  # of generation config, config and tokenizer together
    context: int  # longest sequence the model takes, prompt included
    vocab_size: int  # rows of the logits; padded ones included
    is_encoder_decoder: bool


def wrap(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, name: str, revision=None) -> LoadedModel:
    """Describe a model that is already in memory; freezes it."""
    model.eval()
    model.requires_grad_(False)
    head = model.get_output_embeddings()
    return LoadedModel(
        name=name,
        revision=revision,
        model=model,
        tokenizer=tokenizer,
        device=_input_device(model),
        dtype=model.dtype,
        eos_ids=_eos_ids(model, tokenizer),
        context=_context(model.config),
        vocab_size=head.weight.shape[0] if head is not None else model.config.vocab_size,
        is_encoder_decoder=bool(model.config.is_encoder_decoder),
    )


def load_model(name: str, *, device=None, dtype=None, progress: Progress | None = None) -> LoadedModel:
    """Load a model of the zoo, a folder or a Hub id.

    device: cuda, else mps, else cpu where it is not given; dtype: bfloat16 on a GPU and float32 on a CPU.
    Takes safetensors only and never runs code of a repository. UsageError, in one line that says what to do, where
    the model is not there, cannot be brought here, is damaged or does not fit.
    """
    folder = Path(name)
    if not folder.is_dir():
        raise UsageError(f"{name}: no such folder")
    device = torch.device(device) if device is not None else default_device()
    dtype = dtype if dtype is not None else default_dtype(device)
    config = AutoConfig.from_pretrained(folder)
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model = kind.from_pretrained(folder, config=config, dtype=dtype, use_safetensors=True).to(device)
    return wrap(model, AutoTokenizer.from_pretrained(folder), name)


def load_pair(
    target: str, draft: str | None = None, *, device=None, dtype=None, progress: Progress | None = None
) -> tuple[LoadedModel, LoadedModel | None]:
    """Load a target and, where one is named, its draft model; UsageError if their tokenizers differ."""
    first = load_model(target, device=device, dtype=dtype, progress=progress)
    if draft is None:
        return first, None
    second = load_model(draft, device=device, dtype=dtype, progress=progress)
    check_pair(first, second)
    return first, second


def encode_prompt(loaded: LoadedModel, text: str, chat: bool = True) -> list[int]:
    """Token ids of a prompt.

    With the model's chat template where it has one and `chat` is true, up to where the model's answer begins; else
    with the special tokens that the tokenizer adds by itself (BOS of Llama and OPT, EOS of T5).
    UsageError if there is nothing to continue.
    """
    tokenizer = loaded.tokenizer
    if not text.strip():
        raise UsageError("the prompt is empty: type a prompt to continue")
    if chat and tokenizer.chat_template:
        turns = [{"role": "user", "content": text}]
        return list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False))
    ids = list(tokenizer(text).input_ids)
    if not ids:
        raise UsageError(f"the prompt has no token of {loaded.name}: type a prompt in characters that it knows")
    return ids


def _input_device(model: PreTrainedModel) -> torch.device:
    """Where input ids go. Weights that accelerate keeps elsewhere and brings in for each call say "meta" themselves."""
    tokens = model.get_input_embeddings()
    hook = getattr(tokens, "_hf_hook", None)
    placed = getattr(hook, "execution_device", None)
    return torch.device(placed) if placed is not None else tokens.weight.device


def default_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps") if torch.backends.mps.is_available() else torch.device("cpu")


def default_dtype(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> frozenset[int]:
    """All ids that end a text: the three places name different ones (chat models end turns and documents)."""
    found: set[int] = set()
    sources = (model.generation_config, model.config, tokenizer)
    for value in (getattr(source, "eos_token_id", None) for source in sources):
        if value is not None:
            found.update([value] if isinstance(value, int) else value)
    return frozenset(int(token) for token in found)


def _context(config) -> int:
    for key in ("max_position_embeddings", "n_positions", "n_ctx"):
        value = getattr(config, key, None)
        # T5 keeps an n_positions that limits nothing: its positions are relative.
        if value and not hasattr(config, "relative_attention_num_buckets"):
            return int(value)
    return UNBOUNDED
