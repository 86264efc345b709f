"""Does a model fit? Asked before it is loaded, and before it is downloaded."""

from __future__ import annotations

from pathlib import Path

import torch

from specviz.errors import UsageError

# What decoding takes beside the weights: caches, activations, the libraries' own buffers.
SPARE = 300_000_000


def available(device: torch.device) -> int | None:
    """Bytes that a model may take on a device; None where it cannot be known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu":
        limits = [value for value in (_meminfo(), _cgroup_v2(), _cgroup_v1()) if value is not None]
        return min(limits) if limits else None
    return None


def check_fits(name: str, weights: int, device: torch.device, bytes_per_weight: int) -> None:
    """UsageError if `weights` weights of `bytes_per_weight` bytes do not fit on the device."""
    free = available(device)
    needed = weights * bytes_per_weight + SPARE
    if free is None or needed <= free:
        return
    tips = ["choose a smaller model"]
    if bytes_per_weight > 2:
        tips.append("try dtype bfloat16, which takes half")
    if device.type == "cuda":
        tips.append("try device cpu")
    raise UsageError(
        f"{name} needs {needed / 1e9:.1f} GB on {device} and {free / 1e9:.1f} GB are free: " + ", or ".join(tips)
    )


def _meminfo(path: Path = Path("/proc/meminfo")) -> int | None:
    try:
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup_v2(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """The tightest limit on the way from the own control group to the root, less what is used, caches apart."""
    try:
        lines = own.read_text().splitlines()
        place = next(line.split("::", 1)[1] for line in lines if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    group = root / place.strip().lstrip("/")
    free = [value for folder in (group, *group.parents) if (value := _group_free(folder)) is not None]
    return min(free) if free else None


def _group_free(folder: Path) -> int | None:
    try:
        limit = (folder / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(0, int(limit) - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None


def _cgroup_v1(root: Path = Path("/sys/fs/cgroup/memory")) -> int | None:
    try:
        limit = int((root / "memory.limit_in_bytes").read_text())
        used = int((root / "memory.usage_in_bytes").read_text())
        stat = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return max(0, limit - used + int(stat.get("total_inactive_file", 0))) if limit < 1 << 60 else None
