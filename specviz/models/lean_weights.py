"""The weights of a Llama-shaped model, arranged for a forward without module calls.

Query, key and value become one matrix, gate and up another. They are laid out (in, out), which at a few rows is the
faster order of the two on a CPU. The model's own parameters become views of them, so nothing is held twice and the
model goes on working, in place of a copy that could go stale while it is trained.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specviz.models.loading import LoadedModel

# (n, in) -> (n, out), and the same with something to add to the result: (n, in), (n, out) -> (n, out)
Linear = Callable[[Tensor], Tensor]
AddingLinear = Callable[[Tensor, Tensor], Tensor]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
# How far a rotation can be written into a table ahead of time; the others depend on the length of the sequence.
_FIXED_ROTATIONS = ("default", "linear", "yarn", "llama3")


@dataclass(frozen=True, slots=True)
class LeanLayer:
    """One layer. head_norms: (heads of queries and keys, head_dim), the norms before rotation, or None.
    window: how many positions it looks back, its own included, or None."""

    input_norm: Tensor
    qkv: Linear
    head_norms: Tensor | None
    output: AddingLinear
    post_norm: Tensor
    gate_up: Linear
    down: AddingLinear
    window: int | None


class LeanWeights:
    """What the lean stream needs of a model. ``current`` says whether it is still what the model has."""

    def __init__(self, model: nn.Module):
        config, decoder = model.config, model.get_decoder()
        first = decoder.layers[0].self_attn
        self.head_dim: int = first.head_dim
        self.query_heads: int = config.num_attention_heads
        self.key_heads: int = config.num_key_value_heads
        self.scale: float = first.scaling
        self.eps: float = config.rms_norm_eps
        self.activation = decoder.layers[0].mlp.act_fn
        self.silu: bool = config.hidden_act in ("silu", "swish")
        self._modules = [module for module in model.modules()]
        self._places: list[tuple[nn.Parameter, int]] = []
        self.embedding: Tensor = model.get_input_embeddings().weight
        self.final_norm: Tensor = decoder.norm.weight
        self.matrices = [self._fuse(block) for block in decoder.layers]
        self.layers = [self._layer(block, fused) for block, fused in zip(decoder.layers, self.matrices, strict=True)]
        head = model.get_output_embeddings().weight
        self._remember(head, self.embedding, self.final_norm)
        self.head_weight: Tensor = head.data
        self.head: Linear = _linear(head.data.t(), None)
        self._rotary = decoder.rotary_emb
        self._tables: tuple[Tensor, Tensor] | None = None

    @property
    def current(self) -> bool:
        """False when the model was moved, cast, hooked or patched since."""
        return all(weight.data_ptr() == place for weight, place in self._places) and _plain(self._modules)

    def rotation(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of at least ``length`` positions, each (length, head_dim), so that a vector x is
        turned by x * cos + x.roll(head_dim / 2) * sin."""
        if self._tables is None or len(self._tables[0]) < length:
            with torch.inference_mode(False), torch.no_grad():
                positions = torch.arange(length, device=self.embedding.device)[None]
                cos, sin = (table[0] for table in self._rotary(self.embedding[:1], position_ids=positions))
                half = self.head_dim // 2
                self._tables = cos.contiguous(), torch.cat((-sin[:, :half], sin[:, half:]), dim=-1)
        return self._tables

    def _fuse(self, block: nn.Module) -> dict[str, tuple[Tensor, Tensor | None]]:
        attention, mlp = block.self_attn, block.mlp
        groups = {
            "qkv": (attention.q_proj, attention.k_proj, attention.v_proj),
            "output": (attention.o_proj,),
            "gate_up": (mlp.gate_proj, mlp.up_proj),
            "down": (mlp.down_proj,),
        }
        return {name: self._matrix(group) for name, group in groups.items()}

    def _matrix(self, group: tuple[nn.Linear, ...]) -> tuple[Tensor, Tensor | None]:
        """One matrix (in, out) and one bias (out,) of modules side by side; their parameters become views of them."""
        rows = [module.out_features for module in group]
        whole = torch.cat([module.weight.data.t() for module in group], dim=1).contiguous()
        for module, part in zip(group, whole.split(rows, dim=1), strict=True):
            module.weight.data = part.t()
            self._remember(module.weight)
        bias = None
        if group[0].bias is not None:
            bias = torch.cat([module.bias.data for module in group])
            for module, part in zip(group, bias.split(rows), strict=True):
                module.bias.data = part
                self._remember(module.bias)
        return whole, bias

    def _remember(self, *weights: nn.Parameter) -> None:
        self._places.extend((weight, weight.data_ptr()) for weight in weights)

    def _layer(self, block: nn.Module, fused: dict[str, tuple[Tensor, Tensor | None]]) -> LeanLayer:
        attention = block.self_attn
        head_norms = None
        if getattr(attention, "q_norm", None) is not None:
            head_norms = torch.cat((
                attention.q_norm.weight.data.expand(self.query_heads, -1),
                attention.k_norm.weight.data.expand(self.key_heads, -1),
            ))
        window = getattr(attention, "sliding_window", None)
        if block.self_attn.config.model_type == "mistral":
            window = attention.config.sliding_window
        return LeanLayer(
            input_norm=block.input_layernorm.weight.data,
            qkv=_linear(*fused["qkv"]),
            head_norms=head_norms,
            output=_adding_linear(*fused["output"]),
            post_norm=block.post_attention_layernorm.weight.data,
            gate_up=_linear(*fused["gate_up"]),
            down=_adding_linear(*fused["down"]),
            window=window,
        )


def lean_weights(loaded: LoadedModel) -> LeanWeights | None:
    """The lean form of a model, made once for each, or None where the model isn't one that it can stand for.

    It stands for plain Llama-shaped models whose weights all lie on one device: no quantised, offloaded, hooked or
    patched modules, since a forward without module calls would pass them by.
    """
    model = loaded.model
    known = _KNOWN.get(model)
    if known is not None and known.current:
        return known
    _KNOWN.pop(model, None)
    if not _fits(model):
        return None
    # Not inference tensors, whatever the caller is in: the model's own parameters become views of these.
    with torch.inference_mode(False), torch.no_grad():
        _KNOWN[model] = LeanWeights(model)
    return _KNOWN[model]


_KNOWN: weakref.WeakKeyDictionary[nn.Module, LeanWeights] = weakref.WeakKeyDictionary()


def _fits(model: nn.Module) -> bool:
    config = model.config
    if config.model_type not in FAMILIES or model.training or getattr(config, "quantization_config", None):
        return False
    weights = list(model.parameters())
    same = {(weight.device, weight.dtype) for weight in weights}
    if len(same) != 1 or weights[0].device.type == "meta" or any(weight.requires_grad for weight in weights):
        return False
    if not weights[0].dtype.is_floating_point or not _plain(model.modules()):
        return False
    decoder = model.get_decoder()
    parts = [
        part for block in decoder.layers for part in (
            block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj, block.self_attn.o_proj,
            block.mlp.gate_proj, block.mlp.up_proj, block.mlp.down_proj,
        )
    ]
    head = model.get_output_embeddings()
    if any(type(part) is not nn.Linear for part in (*parts, head)) or head.bias is not None:
        return False
    return decoder.rotary_emb.rope_type in _FIXED_ROTATIONS


def _plain(modules) -> bool:
    """No hooks (accelerate sets them to place weights) and no patched forwards."""
    return not any(
        module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__ for module in modules
    )


def _linear(weight: Tensor, bias: Tensor | None) -> Linear:
    if bias is None:
        return lambda x: torch.mm(x, weight)
    return lambda x: torch.addmm(bias, x, weight)


def _adding_linear(weight: Tensor, bias: Tensor | None) -> AddingLinear:
    if bias is None:
        return lambda x, residual: torch.addmm(residual, x, weight)
    return lambda x, residual: torch.addmm(residual, x, weight).add_(bias)
