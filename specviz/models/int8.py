"""Weights in 8 bits, an option for CPUs: a quarter of the memory to read, and arithmetic that they are fast at.

Each row of a matrix is kept as whole numbers -127..127 and one scale; activations are quantised as they come (dynamic
quantisation), every token by its own range. That last part is what speculation needs: were the range taken over all
tokens of a call, as PyTorch does, a token verified in a block would get other logits than the same token alone.

It is another model than the one in fp32: its text may differ, and its name says so. Speculation with it is checked
against itself.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from specviz.errors import UsageError
from specviz.models.trimmed import Trimmed, TrimmedHead

if TYPE_CHECKING:
    from specviz.models.loading import LoadedModel

WEIGHTS = ("as loaded", "int8")


class Int8Linear(nn.Module):
    """y = x W + b with W in 8 bits. weight: (out, in) int8, scales: (out,)."""

    def __init__(self, module: nn.Linear):
        super().__init__()
        exact = module.weight.data.float()
        # A row of zeros gets a scale that isn't zero.
        scales = exact.abs().amax(dim=1).clamp_(min=1e-12) / 127
        self.register_buffer("weight", (exact / scales[:, None]).round_().to(torch.int8))
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if module.bias is None else module.bias.data.float())
        self.out_features, self.in_features = self.weight.shape
        self._product: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        if self._product is None:  # packed when it is first needed: the lean layers pack their own
            self._product = int8_product(*packed([self]))
        return self._product(x)


class Int8TrimmedHead(Trimmed, Int8Linear):
    """A :class:`TrimmedHead` with its rows in 8 bits."""

    def __init__(self, head: TrimmedHead):
        super().__init__(head)
        self.register_buffer("ids", head.ids)
        self.out_features = head.out_features

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., vocabulary)."""
        return self.widen(super().forward(x))


EIGHT_BITS = {nn.Linear: Int8Linear, TrimmedHead: Int8TrimmedHead}


# Two columns that meet weights of 0 hold the range of activations at -1..1, whatever the tokens of a call are.
ENDS = torch.tensor([[1.0, -1.0]])
LEAST = 1e-12  # what a row is divided by at least


def narrow() -> bool:
    """Without VNNI, pairs of products are summed in 16 bits: activations then get 7 bits, so that nothing overflows."""
    return not torch.cpu._is_vnni_supported()


def packed(modules: Sequence[Int8Linear]) -> tuple[torch.ScriptObject, Tensor | None]:
    """The weights of several modules side by side, with two columns of zeros more, as ``quantized.linear_dynamic`` takes
    them, and their bias."""
    scales = torch.cat([module.scales for module in modules]).double()
    values = torch.nn.functional.pad(torch.cat([module.weight for module in modules]), (0, 2))
    bias = None if modules[0].bias is None else torch.cat([module.bias for module in modules])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # announces a removal in a release behind the ones that are allowed here
        zeros = torch.zeros(len(scales), dtype=torch.long)
        exact = torch._make_per_channel_quantized_tensor(values, scales, zeros, 0)
        return torch.ops.quantized.linear_prepack(exact, None), bias


def int8_product(weights: torch.ScriptObject, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The product with ``packed`` weights: (..., in) -> (..., sum of out)."""
    multiply, few = torch.ops.quantized.linear_dynamic, narrow()

    def product(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        size = rows.abs().amax(dim=1, keepdim=True).clamp_(min=LEAST)
        y = multiply(torch.cat((rows / size, ENDS.expand(len(rows), 2)), dim=1), weights, few).mul_(size)
        return (y if bias is None else y.add_(bias)).view(*x.shape[:-1], y.shape[-1])

    return product


def quantised(loaded: LoadedModel) -> LoadedModel:
    """The same model with 8-bit weights in its layers and its head, under a name that says so. Changes it in place.

    UsageError where it is not on a CPU in fp32 or where its layers are not made of plain linear modules.
    """
    if loaded.device.type != "cpu" or loaded.dtype != torch.float32:
        raise UsageError(f"{loaded.name}: 8-bit weights are for float32 on a CPU: leave --weights out, or set both")
    model = loaded.model
    with torch.inference_mode(False), torch.no_grad():
        try:
            found = [
                (parent, name, EIGHT_BITS[type(child)](child))
                for parent in model.modules() for name, child in parent.named_children() if type(child) in EIGHT_BITS
            ]
            if found:
                found[0][2](torch.zeros(1, found[0][2].in_features))
        except (AttributeError, RuntimeError) as error:
            raise UsageError(f"this build of torch has no 8-bit products ({error}): leave --weights out") from error
        if not found:
            raise UsageError(f"{loaded.name} has no plain linear modules to quantise: leave --weights out")
        for parent, name, child in found:
            setattr(parent, name, child)
    return dataclasses.replace(loaded, name=f"{loaded.name}:int8")
