"""What a folder of safetensors holds, read from the files' headers alone."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path

from specviz.errors import UsageError

HEADER_LIMIT = 100_000_000  # bytes; what the format itself allows


def weight_files(folder: Path, name: str) -> list[Path]:
    """The safetensors of a model's folder; UsageError where it has none, or lacks some that its index names."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, OSError) as error:
            raise UsageError(f"{name}: {index.name} is damaged: fetch the model again") from error
        missing = [shard for shard in shards if not (folder / shard).is_file()]
        if missing:
            raise UsageError(f"{name}: {', '.join(missing)} is missing in {folder}: fetch the model again")
        return [folder / shard for shard in shards]
    files = [folder / "model.safetensors"]
    if files[0].is_file():
        return files
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        raise UsageError(
            f"{name} holds pickled weights only, and nothing but safetensors is loaded: convert it once with "
            "save_pretrained of Transformers and give the new folder"
        )
    raise UsageError(f"{name} holds no model.safetensors: give the folder that save_pretrained wrote")


def count_weights(files: list[Path], name: str) -> int:
    """Number of weights in safetensors files; UsageError if one is cut short or is none."""
    return sum(_count(file, name) for file in files)


def _count(file: Path, name: str) -> int:
    size = file.stat().st_size
    damaged = f"{name}: {file.name} is damaged"
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > min(size, HEADER_LIMIT):
                raise UsageError(f"{damaged} (it is no safetensors file): fetch the model again")
            header = json.loads(stream.read(length))
        tensors = [value for key, value in header.items() if key != "__metadata__"]
        expected = 8 + length + max((tensor["data_offsets"][1] for tensor in tensors), default=0)
        weights = sum(prod(tensor["shape"]) for tensor in tensors)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{damaged} (its header cannot be read): fetch the model again") from error
    if size != expected:
        raise UsageError(f"{damaged} ({size:,} bytes of {expected:,}): fetch the model again")
    return weights
