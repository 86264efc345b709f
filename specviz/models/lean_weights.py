"""The weights of a Llama-shaped model, arranged for a forward without module calls.

Query, key and value become one matrix, gate and up another. They are laid out (in, out), which at a few rows is the
faster order of the two on a CPU. The model's own parameters become views of them, so nothing is held twice and the
model goes on working, in place of a copy that could go stale while it is trained.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from specviz.models.int8 import Int8Linear, int8_product, narrow, packed
from specviz.models.lean_script import ScriptedInt8Layers, ScriptedLayers, compiled
from specviz.models.loading import LoadedModel
from specviz.models.packing import Packer
from specviz.models.trimmed import Trimmed

# (n, in) -> (n, out), and the same with something to add to the result: (n, in), (n, out) -> (n, out)
Linear = Callable[[Tensor], Tensor]
AddingLinear = Callable[[Tensor, Tensor], Tensor]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
# transformers leaves hooks of this module behind when hidden states or attentions were asked for once; they do nothing
# until somebody asks again.
_CAPTURING = "transformers.utils.output_capturing"
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


# In this order the matrices of a layer are made, and the compiled loop takes them.
_GROUPS = ("qkv", "output", "gate_up", "down")


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
        # The model is the key that this is kept under: holding it would keep both for ever.
        self._model = weakref.ref(model)
        self._parts = [module for module in model.modules() if module is not model]
        self._places: list[tuple[Tensor, int, int | None]] = []  # weight, its address, its version where that matters
        self.embedding: Tensor = model.get_input_embeddings().weight
        self.final_norm: Tensor = decoder.norm.weight
        head = model.get_output_embeddings()
        self._remember(head.weight, self.embedding, self.final_norm)
        packer = Packer(sum(weight.numel() for weight in model.parameters()), self.embedding.device, self.embedding.dtype)
        self._matrices: list[tuple[Any, Tensor | None]] = []  # the matrices in order, as long as the packer took none
        self.layers = [self._layer(block, packer) for block in decoder.layers]
        head_ids = head.ids if isinstance(head, Trimmed) else torch.empty(0, dtype=torch.long)
        if isinstance(head, Int8Linear):
            head_matrix, _ = packed([head])
            self.head: Linear = int8_product(head_matrix, None)
        else:
            head_matrix = head.weight.data.t()
            self.head = _linear(head_matrix, None, packer)
        if isinstance(head, Trimmed):
            few = self.head
            self.head = lambda x: head.widen(few(x))
        eight = isinstance(first.q_proj, Int8Linear)
        self.scripted = None if packer.used else self._scripted(head_matrix, head_ids, eight)
        self.kind = "lean+int8" if eight else "lean+packed" if packer.used else "lean"
        if packer.used:  # copies do not follow a weight that is trained: its version tells
            self._places = [(weight, place, weight._version) for weight, place, _ in self._places]
        if not any(hook is _contiguous for hook in model._state_dict_hooks.values()):
            model.register_state_dict_post_hook(_contiguous)
        self._rotary = decoder.rotary_emb
        self._tables: tuple[Tensor, Tensor] | None = None

    @property
    def current(self) -> bool:
        """False when the model was moved, cast, hooked or patched since, or changed behind its packed copies."""
        return all(
            weight.data_ptr() == place and version in (None, weight._version) for weight, place, version in self._places
        ) and _plain([self._model(), *self._parts])

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

    def _scripted(self, head, head_ids: Tensor, eight: bool):
        """The layers compiled, where they are of the kind that the compiled loop knows; else None."""
        weight = self.embedding
        simple = self.silu and not any(layer.head_norms is not None or layer.window for layer in self.layers)
        if not simple or weight.device.type != "cpu" or weight.dtype != torch.float32 or eight != (not isinstance(head, Tensor)):
            return None
        groups = [self._matrices[place :: len(_GROUPS)] for place in range(len(_GROUPS))]
        if len(self._matrices) != len(_GROUPS) * len(self.layers) or any(
            bias is not None for group in groups[1:] for _, bias in group
        ):
            return None
        biases = [bias for _, bias in groups[0] if bias is not None]
        qkv, output, gate_up, down = ([matrix for matrix, _ in group] for group in groups)
        parts = (
            qkv, biases, output, gate_up, down, weight.data, head, head_ids, self.query_heads, self.key_heads, self.head_dim,
            weight.shape[1] * self.eps,
        )
        return compiled(ScriptedInt8Layers(*parts, narrow=narrow()) if eight else ScriptedLayers(*parts))

    def _layer(self, block: nn.Module, packer: Packer) -> LeanLayer:
        attention, mlp = block.self_attn, block.mlp
        head_norms = None
        if getattr(attention, "q_norm", None) is not None:
            head_norms = torch.cat((
                attention.q_norm.weight.data.expand(self.query_heads, -1),
                attention.k_norm.weight.data.expand(self.key_heads, -1),
            ))
        window = getattr(attention, "sliding_window", None)
        if attention.config.model_type == "mistral":
            window = attention.config.sliding_window
        return LeanLayer(
            input_norm=block.input_layernorm.weight.data,
            qkv=self._side_by_side((attention.q_proj, attention.k_proj, attention.v_proj), packer),
            head_norms=head_norms,
            output=self._adding(attention.o_proj, packer),
            post_norm=block.post_attention_layernorm.weight.data,
            gate_up=self._side_by_side((mlp.gate_proj, mlp.up_proj), packer),
            down=self._adding(mlp.down_proj, packer),
            window=window,
        )

    def _side_by_side(self, group: tuple[nn.Module, ...], packer: Packer) -> Linear:
        """One product that gives the results of all modules, one behind the other."""
        if isinstance(group[0], Int8Linear):
            return int8_product(*self._int8(group))
        return _linear(*self._matrix(group), packer)

    def _adding(self, module: nn.Module, packer: Packer) -> AddingLinear:
        if isinstance(module, Int8Linear):
            product = int8_product(*self._int8((module,)))
            return lambda x, residual: product(x).add_(residual)
        return _adding_linear(*self._matrix((module,)), packer)

    def _int8(self, group: tuple[Int8Linear, ...]):
        self._remember(*(module.weight for module in group))
        self._matrices.append(packed(group))
        return self._matrices[-1]

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
        self._matrices.append((whole, bias))
        return whole, bias

    def _remember(self, *weights: Tensor) -> None:
        self._places.extend((weight, weight.data_ptr(), None) for weight in weights)


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
    if len(same) != 1 or weights[0].device.type == "meta" or any(
        weight.requires_grad or weight.is_inference() for weight in weights
    ):
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
    kinds = {type(part) for part in (*parts, head) if not isinstance(part, Trimmed)}
    if kinds not in ({nn.Linear}, {Int8Linear}) or head.bias is not None:
        return False
    return decoder.rotary_emb.rope_type in _FIXED_ROTATIONS


def _contiguous(model: nn.Module, state: dict, prefix: str, metadata: dict) -> None:
    """In what is saved, the views are matrices of their own again: safetensors writes no others."""
    for key, value in state.items():
        if isinstance(value, Tensor):
            state[key] = value.contiguous()


def _plain(modules) -> bool:
    """No hooks (accelerate sets them to place weights) and no patched forwards."""
    return not any(
        module._forward_pre_hooks or "forward" in module.__dict__
        or any(hook.__module__ != _CAPTURING for hook in module._forward_hooks.values())
        for module in modules
    )


def _linear(weight: Tensor, bias: Tensor | None, packer: Packer) -> Linear:
    plain: Linear = (
        (lambda x: torch.mm(x, weight)) if bias is None else (lambda x: torch.addmm(bias, x, weight))
    )
    return packer.product(weight, bias, plain)


def _adding_linear(weight: Tensor, bias: Tensor | None, packer: Packer) -> AddingLinear:
    plain = _linear(weight, bias, packer)
    if packer.used or bias is not None:
        return lambda x, residual: plain(x).add_(residual)
    return lambda x, residual: torch.addmm(residual, x, weight)
