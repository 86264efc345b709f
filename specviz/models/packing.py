"""Weights in the order in which oneDNN multiplies them: on a CPU, blocks of tokens then cost little more than one.

A plain forward of several tokens costs up to twice as much as one of a single token, because the matrix product
rearranges its weights at every call; speculation hardly pays then. Packing rearranges them once. The operators are
private to PyTorch, so they are probed for, tried for equality, and timed against the plain product, matrix by matrix;
where they are missing or don't pay, nothing is packed, and the stream's name in the log says which it is.

Packed weights are a second copy. It is made only where it fits into a share of the memory that is free.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch
from torch import Tensor

from specviz.models.memory import available

SWITCH = "SPECVIZ_PACKING"  # "never" switches it off, to compare
_SMALLEST_MODEL = 8_000_000  # weights; of a smaller model packing gains less than the noise of trying it
_FEWEST_WEIGHTS = 200_000  # matrices smaller than this are in the processor's cache; calling oneDNN costs more
_ROWS = 8  # tokens in the block that weights are packed for
_GAIN = 0.95  # packed has to take less than this share of the plain time
_TRIES = 4
_CACHES = 4_000_000  # numbers that drive a matrix out of a core's caches: in a run its turn comes once a forward
_SHARE = 0.5  # of the free memory that packed copies may take

Product = Callable[[Tensor], Tensor]  # (n, in) -> (n, out)


class Packer:
    """Packs the matrices of one model. ``used``: whether packing paid for any of them."""

    def __init__(self, weights: int, device: torch.device, dtype: torch.dtype):
        """weights: how many there are, of which packing may make a second copy."""
        free = available(device)
        self._allowed = (
            device.type == "cpu" and dtype == torch.float32 and os.environ.get(SWITCH) != "never"
            and weights >= _SMALLEST_MODEL and _operators() is not None and (free is None or weights * 4 < _SHARE * free)
        )
        self._from: dict[tuple[int, ...], int | None] = {}  # by shape: from how many rows on packed is faster
        self.used = False

    def product(self, weight: Tensor, bias: Tensor | None, plain: Product) -> Product:
        """The faster of plain and packed for the number of rows it is given. weight: (in, out); bias: (out,)."""
        if not self._allowed or weight.numel() < _FEWEST_WEIGHTS:
            return plain
        shape = tuple(weight.shape)
        if shape in self._from and self._from[shape] is None:
            return plain
        packed = _pack(weight, bias)
        if packed is None:
            return plain
        if shape not in self._from:
            same = _agree(plain, packed, weight.shape[0])
            self._from[shape] = _faster_from(plain, packed, weight.shape[0]) if same else None
        least = self._from[shape]
        if least is None:
            return plain
        self.used = True
        return packed if least == 1 else lambda x: packed(x) if x.size(0) >= least else plain(x)


def _operators():
    try:
        return torch.ops.mkldnn._reorder_linear_weight, torch.ops.mkldnn._linear_pointwise
    except (AttributeError, RuntimeError):
        return None


def _pack(weight: Tensor, bias: Tensor | None) -> Product | None:
    reorder, multiply = _operators()
    try:
        packed = reorder(weight.t().contiguous(), _ROWS)
    except RuntimeError:
        return None
    return lambda x: multiply(x, packed, bias, "none", [], "")


def _agree(plain: Product, packed: Product, width: int) -> bool:
    for rows in (1, _ROWS):
        x = torch.randn(rows, width)
        try:
            expected, found = plain(x), packed(x)
        except RuntimeError:
            return False
        if not (found - expected).abs().max() <= 1e-4 * expected.abs().max():
            return False
    return True


def _faster_from(plain: Product, packed: Product, width: int) -> int | None:
    """From how many rows on the packed product is the faster one: 1, 2, 4 or 8, or None for never."""
    least, caches = None, torch.zeros(_CACHES)
    for rows in (8, 4, 2, 1):
        x = torch.randn(rows, width)
        if _best_time(packed, x, caches) > _GAIN * _best_time(plain, x, caches):
            break
        least = rows
    return least


def _best_time(product: Product, x: Tensor, caches: Tensor) -> float:
    product(x)
    best = float("inf")
    for _ in range(_TRIES):
        caches.add_(1.0)
        began = time.perf_counter()
        product(x)
        best = min(best, time.perf_counter() - began)
    return best
