"""How many of the machine's cores torch computes with."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from specviz.models.loading import LoadedModel

# Up to here one core computes a token sooner than two agree on their shares, and a browser keeps the other.
SMALL_BYTES = 64_000_000


def usable_cores() -> int:
    """Cores that this process may keep busy: of its affinity, or of its container's quota where that is less."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _quota()
    return max(1, min(cores, quota) if quota else cores)


def choose_threads() -> int:
    """Set and return the number of threads that torch computes with.

    torch counts the machine's cores, also in a container that may use two of them: its threads then wait for one
    another most of the time. A number that the user set (OMP_NUM_THREADS) stays.
    """
    if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > usable_cores():
        torch.set_num_threads(usable_cores())
    return torch.get_num_threads()


def share_cores(*models: LoadedModel | None) -> None:
    """Set how many cores the thread that calls computes with: one for small models, else all, or what the user set."""
    here = [loaded for loaded in models if loaded is not None]
    if "OMP_NUM_THREADS" in os.environ or any(loaded.device.type != "cpu" for loaded in here):
        return
    size = sum(weights.nbytes for loaded in here for weights in loaded.model.parameters())
    torch.set_num_threads(1 if size < SMALL_BYTES else usable_cores())


def _quota() -> int | None:
    """Whole cores of the container's quota, rounded up, or None without one."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            folder = Path("/sys/fs/cgroup/cpu")
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except OSError:
            return None
    try:
        return -(-int(quota) // int(period)) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):  # "max"
        return None
