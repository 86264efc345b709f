"""The training forward of a Llama-shaped model, over the weights of an ordinary ``LlamaForCausalLM``.

Written out as functions of tensors instead of module calls: a layer can be run on the kept rows of a batch alone (layer
dropout that skips work), the hidden state after every layer is at hand for the exit losses, and the few operations between
the matrices, which on a CPU cost as much as the matrices of so small a model, have short backward passes written by hand.
A test holds outputs and gradients equal to the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

# Called with the layer's index and the batch size, says which rows pass through the layer; None: all of them.
RowChoice = Callable[[int, int], Tensor | None]


class _Rotate(torch.autograd.Function):
    """x·cos + swap(x)·sin, where swap exchanges the halves of the last dimension; sin carries the minus sign."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        return (grad * cos).add_((grad * sin).roll(grad.shape[-1] // 2, dims=-1)), None, None


class _SwiGLU(torch.autograd.Function):
    """(rows, 2n) holding gate and up side by side -> silu(gate)·up, (rows, n)."""

    @staticmethod
    def forward(ctx, both):
        gate, up = both.chunk(2, dim=-1)
        sigmoid = gate.sigmoid()
        silu = gate * sigmoid
        ctx.save_for_backward(gate, up, sigmoid, silu)
        return silu * up

    @staticmethod
    def backward(ctx, grad):
        gate, up, sigmoid, silu = ctx.saved_tensors
        out = torch.empty(*grad.shape[:-1], 2 * grad.shape[-1], dtype=grad.dtype, device=grad.device)
        out_gate, out_up = out.chunk(2, dim=-1)
        torch.mul(grad, silu, out=out_up)
        # d silu = sigmoid·(1 + gate·(1 - sigmoid)) = sigmoid + silu·(1 - sigmoid)
        torch.addcmul(sigmoid, silu, 1 - sigmoid, out=out_gate)
        out_gate.mul_(up).mul_(grad)
        return out


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        inverse = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        normed = x * inverse
        ctx.save_for_backward(normed, inverse, weight)
        return normed * weight

    @staticmethod
    def backward(ctx, grad):
        normed, inverse, weight = ctx.saved_tensors
        product = grad * normed
        grad_weight = product.flatten(0, -2).sum(0)
        mean = (product @ weight).div_(normed.shape[-1]).unsqueeze(-1)
        return (grad * weight).sub_(normed * mean).mul_(inverse), grad_weight, None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """(..., hidden) -> same, as ``LlamaRMSNorm``."""
    if x.device.type != "cpu":  # there the library's kernels are better than these few operations
        return F.rms_norm(x, (x.shape[-1],), weight, eps)
    return _RMSNorm.apply(x, weight, eps)


@dataclass(frozen=True)
class Block:
    """The weights of one ``LlamaDecoderLayer`` and the numbers its computation needs."""

    norm_1: Tensor
    qkv: tuple[Tensor, Tensor, Tensor]
    out: Tensor
    norm_2: Tensor
    gate_up: tuple[Tensor, Tensor]
    down: Tensor
    heads: int
    kv_heads: int
    head_dim: int
    eps: float

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, texts: Sequence[int] | None = None) -> Tensor:
        """(batch, length, hidden) -> same; cos and sin as :func:`rotary_tables` gives them.

        texts: lengths of the texts that stand one behind the other in the only row and don't see each other."""
        batch, length, hidden = x.shape
        qkv = F.linear(rms_norm(x, self.norm_1, self.eps), torch.cat(self.qkv))
        qkv = qkv.view(batch, length, self.heads + 2 * self.kv_heads, self.head_dim)
        turned = _Rotate.apply(qkv[:, :, : self.heads + self.kv_heads], cos, sin)
        query, key = turned.transpose(1, 2).split((self.heads, self.kv_heads), dim=1)
        value = qkv[:, :, self.heads + self.kv_heads :].transpose(1, 2)
        shared = self.heads != self.kv_heads
        if texts is None:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=shared)
        else:
            parts = zip(*(part.split(list(texts), dim=2) for part in (query, key, value)), strict=True)
            mixed = torch.cat(
                [F.scaled_dot_product_attention(*part, is_causal=True, enable_gqa=shared) for part in parts], dim=2
            )
        x = x + F.linear(mixed.transpose(1, 2).reshape(batch, length, hidden), self.out)
        return x + F.linear(
            _SwiGLU.apply(F.linear(rms_norm(x, self.norm_2, self.eps), torch.cat(self.gate_up))), self.down
        )


def rotary_tables(config, length: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """cos and signed sin of plain rotary embedding, each (length, 1, head_dim)."""
    half = config.head_dim // 2
    theta = config.rope_parameters["rope_theta"]
    frequency = theta ** (-torch.arange(half, dtype=torch.float32, device=device) / half)
    angle = torch.outer(torch.arange(length, dtype=torch.float32, device=device), frequency)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((cos, cos), -1)[:, None], torch.cat((-sin, sin), -1)[:, None]


class TrainingForward:
    """The layers of a ``LlamaForCausalLM`` as blocks; gradients reach the model's own parameters."""

    def __init__(self, model) -> None:
        config = model.config
        self.model, self.config = model, config
        self.blocks = []
        for block in model.model.layers:
            attention, mlp = block.self_attn, block.mlp
            self.blocks.append(
                Block(
                    norm_1=block.input_layernorm.weight,
                    qkv=(attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight),
                    out=attention.o_proj.weight,
                    norm_2=block.post_attention_layernorm.weight,
                    gate_up=(mlp.gate_proj.weight, mlp.up_proj.weight),
                    down=mlp.down_proj.weight,
                    heads=config.num_attention_heads,
                    kv_heads=config.num_key_value_heads,
                    head_dim=config.head_dim,
                    eps=config.rms_norm_eps,
                )
            )
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}

    def states(self, ids: Tensor, rows: RowChoice | None = None, layers: int | None = None) -> list[Tensor]:
        """(batch, length) -> the hidden states after each of the first ``layers`` layers (default: all), each
        (batch, length, hidden).

        ``rows`` names the samples that pass through a layer; the others keep their state and cost nothing there.
        """
        return self.onward(F.embedding(ids, self.model.model.embed_tokens.weight), 0, layers, rows)

    def onward(
        self, x: Tensor, first: int, layers: int | None = None, rows: RowChoice | None = None
    ) -> list[Tensor]:
        """The states after layers ``first`` … ``layers - 1``, from the state ``x`` before layer ``first``."""
        length = x.shape[1]
        if length not in self._tables:
            self._tables[length] = rotary_tables(self.config, length, x.device)
        cos, sin = self._tables[length]
        states = []
        for index in range(first, len(self.blocks) if layers is None else layers):
            kept = rows(index, len(x)) if rows else None
            if kept is None:
                x = self.blocks[index](x, cos, sin)
            elif len(kept):
                x = x.index_copy(0, kept, self.blocks[index](x.index_select(0, kept), cos, sin).to(x.dtype))
            states.append(x)
        return states

    def packed(self, ids: Tensor, texts: Sequence[int]) -> Tensor:
        """Texts of any length without filling between them: (total,) -> the last layer's states, (1, total, hidden)."""
        cos, sin = rotary_tables(self.config, max(texts), ids.device)
        places = torch.cat([torch.arange(length, device=ids.device) for length in texts])
        cos, sin = cos[places], sin[places]
        x = F.embedding(ids, self.model.model.embed_tokens.weight)[None]
        for block in self.blocks:
            x = block(x, cos, sin, texts)
        return x

    def normed(self, state: Tensor) -> Tensor:
        """A state through the shared final norm, flattened: (batch, length, hidden) -> (batch · length, hidden)."""
        return rms_norm(state, self.model.model.norm.weight, self.config.rms_norm_eps).flatten(0, -2)

    @property
    def head(self) -> Tensor:
        """(vocabulary, hidden), the matrix shared by all exits."""
        return self.model.lm_head.weight

    @torch.no_grad()
    def picks(self, ids: Tensor, layers: Sequence[int] | None = None) -> Tensor:
        """The token every exit would pick: (batch, length) -> (exits, batch, length). Default: after every layer."""
        states = self.states(ids)
        chosen = range(len(states)) if layers is None else layers
        return torch.stack([F.linear(self.normed(states[i]), self.head).argmax(-1).view_as(ids) for i in chosen])
