"""From a name to a model that is ready to decode: device, precision, tokenizer, stop tokens, context length."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from specviz.errors import UsageError
from specviz.models.composed import compose
from specviz.models.int8 import quantised
from specviz.models.locate import bring, locate
from specviz.models.memory import SPARE, check_fits
from specviz.models.pairing import check_pair
from specviz.models.trimmed import Trimmed
from specviz.models.weights import count_weights, weight_files
from specviz.models.zoo import Entry

__all__ = ["LoadedModel", "Progress", "check_pair", "encode_prompt", "load_model", "load_pair", "wrap"]

# (stage, done, total or None where it is not known, unit: "bytes" or "seconds")
Progress = Callable[[str, float, "float | None", str], None]

DTYPES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}

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
        vocab_size=model.config.vocab_size if head is None or isinstance(head, Trimmed) else head.weight.shape[0],
        is_encoder_decoder=bool(model.config.is_encoder_decoder),
    )


def load_model(
    name: str, *, device=None, dtype=None, progress: Progress | None = None, download: bool = True
) -> LoadedModel:
    """Load a model of the zoo, a folder or a Hub id (owner/name, or owner/name@revision).

    device: cuda, else mps, else cpu where it is not given; a model too large for one GPU is spread over all.
    dtype: bfloat16 on a GPU and float32 on a CPU where it is not given. download: fetch what is not here.
    Takes safetensors only and never runs code of a repository. UsageError, in one line that says what to do, where
    the model is not there, cannot be brought here, is damaged or does not fit.
    """
    place = pick_device(device)
    precision = pick_dtype(dtype, place)
    found = locate(name)
    if isinstance(found, Entry) and not found.here:
        # Before gigabytes are fetched: is there a place for them?
        _place(found.name, found.parameters, place, precision, device is not None)
    folder, revision = bring(name, progress=progress, download=download)
    tell = progress or (lambda stage, done, total, unit: None)
    start = time.monotonic()
    tell(f"loading {name}", 0, None, "seconds")
    if isinstance(found, Entry) and found.source == "composed":
        model = compose(found, folder, precision, progress=progress, download=download).to(place)
        tokens = bring(found.base, download=download)[0]
    else:
        model, tokens = _read(name, folder, place, precision, device is not None), folder
    loaded = wrap(model, _tokenizer(name, tokens), name, revision)
    if isinstance(found, Entry) and found.int8 and loaded.device.type == "cpu" and loaded.dtype == torch.float32:
        try:
            loaded = quantised(loaded)  # its name says so
        except UsageError as error:
            tell(f"{name} stays in 32 bits: {error}", 0, None, "seconds")
    tell(f"loading {name}", time.monotonic() - start, time.monotonic() - start, "seconds")
    return loaded


def load_pair(
    target: str,
    draft: str | None = None,
    *,
    device=None,
    dtype=None,
    progress: Progress | None = None,
    download: bool = True,
) -> tuple[LoadedModel, LoadedModel | None]:
    """Load a target and, where one is named, its draft model; UsageError if their tokenizers differ."""
    options = {"device": device, "dtype": dtype, "progress": progress, "download": download}
    first = load_model(target, **options)
    if draft is None:
        return first, None
    second = load_model(draft, **options)
    check_pair(first, second)
    return first, second


def _read(name: str, folder: Path, place: torch.device, precision: torch.dtype, chosen: bool) -> PreTrainedModel:
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(_config_fault(name, folder, error)) from error
    weights = count_weights(weight_files(folder, name), name)
    spread = _place(name, weights, place, precision, chosen)
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    try:
        with _no_bars():
            model, found = kind.from_pretrained(
                folder,
                config=config,
                dtype=precision,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                **spread,
            )
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise UsageError(f"{name} does not fit in the memory of {place}: choose a smaller model") from error
    except (SafetensorError, OSError, RuntimeError, ValueError, KeyError) as error:
        raise UsageError(f"{name} cannot be loaded from {folder}: {_first_line(error)}") from error
    if found["missing_keys"]:
        some = ", ".join(sorted(found["missing_keys"])[:2])
        raise UsageError(f"{name}: its weights are incomplete ({some}, ...): fetch the model again")
    return model


@contextmanager
def _no_bars():
    """Our own progress is told to the caller; the library's would draw over it."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _place(name: str, weights: int, place: torch.device, precision: torch.dtype, chosen: bool) -> dict:
    """Where from_pretrained puts the weights; UsageError if there is no room for them."""
    size = precision.itemsize
    if place.type == "cuda" and not chosen and torch.cuda.device_count() > 1:
        free = [torch.cuda.mem_get_info(index)[0] for index in range(torch.cuda.device_count())]
        best = max(range(len(free)), key=free.__getitem__)
        if weights * size + SPARE <= free[best]:
            return {"device_map": {"": best}}
        if weights * size + SPARE * len(free) <= sum(free):
            room = {index: max(0, bytes_free - SPARE) for index, bytes_free in enumerate(free)}
            return {"device_map": "auto", "max_memory": room}
    check_fits(name, weights, place, size)
    return {} if place.type == "cpu" else {"device_map": {"": place}}


def _tokenizer(name: str, folder: Path) -> PreTrainedTokenizerFast:
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise UsageError(f"{name}: its tokenizer cannot be loaded from {folder}: {_first_line(error)}") from error
    except Exception as error:  # the tokenizers library raises Exception itself for a file that it cannot parse
        raise UsageError(f"{name}: tokenizer.json is damaged: fetch the model again") from error


def _config_fault(name: str, folder: Path, error: Exception) -> str:
    path = folder / "config.json"
    if not path.is_file():
        return f"{name}: {folder} holds no config.json: give the folder that save_pretrained wrote"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        kind = config.get("model_type")
    except (ValueError, AttributeError, OSError):
        return f"{name}: config.json is damaged: fetch the model again"
    if "auto_map" in config:
        return f"{name} needs code of its own repository, which is never run: choose a model that Transformers knows"
    if isinstance(error, (ValueError, KeyError)) and kind not in CONFIG_MAPPING:
        return f"{name}: this version of Transformers knows no architecture {kind!r}: choose another model"
    return f"{name}: its config.json cannot be used: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


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


def pick_device(wanted=None) -> torch.device:
    """The device that was asked for, or cuda, else mps, else cpu; UsageError if it is not there."""
    if wanted is None:
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("mps") if torch.backends.mps.is_available() else torch.device("cpu")
    try:
        device = torch.device(wanted)
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"device {wanted!r}: choose cuda, cuda:1, mps or cpu") from error
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(device.type, False):
        raise UsageError(f"device {wanted}: this machine has none; leave the device out, or choose cpu")
    return device


def pick_dtype(wanted, device: torch.device) -> torch.dtype:
    """The precision that was asked for, by name or as a dtype; else float32 on a CPU and bfloat16 elsewhere."""
    if wanted is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    found = DTYPES.get(wanted, wanted)
    if found not in DTYPES.values():
        raise UsageError(f"dtype {wanted!r}: choose float32, bfloat16 or float16")
    return found


def _input_device(model: PreTrainedModel) -> torch.device:
    """Where input ids go; a part that is kept on the disk has no device of its own, but one where it is run."""
    table = model.get_input_embeddings()
    hook = getattr(table, "_hf_hook", None)
    ran_on = getattr(hook, "execution_device", None)
    return torch.device(ran_on) if ran_on is not None else table.weight.device


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
