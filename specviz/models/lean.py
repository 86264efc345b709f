"""A forward for Llama-shaped models without module calls: fused matrices, tables, and one cache written in place.

Small models spend their time in dispatch, not in arithmetic: about a millisecond a layer in the public forward of
transformers on two CPU cores. Here a layer is some twenty tensor operations. The numbers are those of the model's own
forward up to rounding; a test holds that for every family.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from specviz.models.lean_script import MOST_TOKENS
from specviz.models.lean_weights import LeanLayer, LeanWeights, lean_weights
from specviz.models.loading import LoadedModel

_CHUNK = 256  # positions of a prefill that are run at once: bounds the attention scores held at a time
_FEW = MOST_TOKENS  # up to this many positions, turning by a small matrix is one operation instead of three
_STEPS = 32  # rows of the staircase mask that is kept; longer blocks build their own
_BEFORE, _AFTER = 32, 96  # positions around the current one whose rotation matrices are kept
_FIRST_ROOM = 256


class LeanStream:
    """SplitStream (see streams.py) over the lean form of a model.

    The cache: keys (L, key heads, head_dim, room), in the order in which they are multiplied with queries, and values
    (L, key heads, room, head_dim). Rewinding sets lengths; nothing is copied. Where the room isn't known it doubles.
    """

    def __init__(self, loaded: LoadedModel, weights: LeanWeights, length: int = 0):
        self._weights = weights
        self.kind = weights.kind
        self._vocab_size = loaded.vocab_size
        self.device = loaded.device
        self._dtype = loaded.dtype
        self.layers = len(weights.layers)
        self._lengths = [0] * self.layers
        self._exact = self._dtype in (torch.float32, torch.float64)
        # On a CPU a norm made of small operations beats the general one; elsewhere, and in low precision, it doesn't.
        small = self.device.type == "cpu" and self._exact
        self._norm = self._small_norm if small else self._any_norm
        width = weights.final_norm.shape[0]
        # A tensor: a number is made into one, of another type, and converted, at every use.
        self._eps = torch.tensor(width * weights.eps, device=self.device, dtype=self._dtype)
        scale = width**0.5 if small else 1.0
        self._norms = [(scale * layer.input_norm, scale * layer.post_norm) for layer in weights.layers]
        self._final_norm = scale * weights.final_norm
        self._scripted = weights.scripted
        self._all_norms = [norm for norms in self._norms for norm in norms] + [self._final_norm]
        self._group = weights.query_heads // weights.key_heads
        self._turned_heads = weights.query_heads + weights.key_heads
        self._turns: Tensor | None = None
        self._turns_from = 0
        self._keys: Tensor | None = None
        self._allocate(length if length > 0 else _FIRST_ROOM)

    @property
    def length(self) -> int:
        return self._lengths[0]

    def layer_length(self, layer: int) -> int:
        """Positions in the cache of one layer."""
        return self._lengths[layer]

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids (n,) -> hidden states (1, n, d)."""
        return F.embedding(ids, self._weights.embedding)[None]

    def head(self, hidden: Tensor) -> Tensor:
        """Final norm and LM head: hidden states (1, n, d) -> logits (n, V)."""
        if self._scripted is not None:
            return self._scripted.head(hidden[0], self._all_norms)
        return self._weights.head(self._norm(hidden[0], self._final_norm))

    def forward(self, ids: Tensor, keep: int | None = None) -> Tensor:
        """Append token ids (n,) in all layers; logits of the last ``keep`` (default: all): (keep, V)."""
        count = ids.size(0)
        keep = count if keep is None else keep
        if self._scripted is not None and keep and count <= MOST_TOKENS:
            start = self._common_length(0, self.layers)
            self._make_room(start + count)
            logits = self._scripted.logits(
                ids, self._all_norms, self._keys, self._values, self._turns_of(start, count),
                self._stair(start, count), start, keep,
            )
            self._lengths = [start + count] * self.layers
            return logits
        hidden = [
            self.run(self.embed(part), 0, self.layers) for part in (ids.split(_CHUNK) if len(ids) > _CHUNK else (ids,))
            if len(part)
        ]
        if not keep or not hidden:
            return torch.empty(0, self._vocab_size, device=self.device, dtype=self._dtype)
        states = hidden[0] if len(hidden) == 1 else torch.cat(hidden, dim=1)
        return self.head(states if keep == len(ids) else states[:, -keep:])

    def draft(
        self, ids: Tensor, most: int, threshold: float, ends: list[int], *, layers: int | None = None,
        vocabulary: int | None = None, read_last: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """A whole greedy draft by the first ``layers`` (default: all) among the first ``vocabulary`` tokens (default: all):
        see ScriptedLayers.draft. None where it is not to be had so and has to be made token by token."""
        count, last = ids.size(0), layers or self.layers
        if self._scripted is None or most < 1 or count > MOST_TOKENS or count + most > _AFTER:
            return None
        start = self._common_length(0, last)
        self._make_room(start + count + most)
        tokens, rows, states = self._scripted.draft(
            ids, self._all_norms, self._keys, self._values, self._turn_matrices(start, count + most),
            self._stair(start, count), start, last, most, threshold, vocabulary or self._vocab_size, ends, read_last,
        )
        self._lengths[:last] = [start + len(states)] * last
        return tokens, rows, states

    def rewind(self, length: int) -> None:
        """Forget every position from ``length`` on, in every layer; afterwards all layers are equally long.

        ValueError if a layer has fewer positions than that: they cannot be made up.
        """
        shortest = min(self._lengths)
        if shortest < length:
            raise ValueError(
                f"rewind to {length}: layer {self._lengths.index(shortest)} holds only {shortest} positions"
            )
        self._lengths = [length] * self.layers

    def close(self) -> None:
        """Free the cache."""
        self._keys = self._values = self._stairs = self._turns = None

    def run(self, hidden: Tensor, first: int, last: int) -> Tensor:
        """Run layers first..last-1 over hidden states (1, n, d), appending n positions to each of them.

        The layers must be equally long. ValueError else. After an exception nothing has been appended.
        """
        start = self._common_length(first, last)
        states = hidden[0]
        count = len(states)
        end = start + count
        self._make_room(end)
        turns = self._turns_of(start, count)
        if self._scripted is not None and count <= MOST_TOKENS:
            states = self._scripted(
                states, self._all_norms, self._keys, self._values, turns, self._stair(start, count), start, first, last
            )
            self._lengths[first:last] = [end] * (last - first)
            return states[None]
        # All layers' places in the cache with one operation each, not one a layer.
        new_keys = self._keys[first:last, :, :, start:end].unbind()
        new_values = self._values[first:last, :, start:end].unbind()
        given = {window: self._past(window, first, last, start, count) for window in self._windows(first, last)}
        for index, layer in enumerate(self._weights.layers[first:last]):
            keys, values, mask = given[layer.window]
            states = self._layer(
                layer, self._norms[first + index], states, turns, new_keys[index], new_values[index], keys[index], values[index], mask
            )
        self._lengths[first:last] = [end] * (last - first)
        return states[None]

    def _common_length(self, first: int, last: int) -> int:
        if not 0 <= first < last <= self.layers:
            raise ValueError(f"run {first}..{last}: this model has layers 0..{self.layers - 1}")
        lengths = self._lengths[first:last]
        if lengths.count(lengths[0]) != len(lengths):
            raise ValueError(f"run {first}..{last}: these layers hold different numbers of positions; rewind first")
        return lengths[0]

    def _layer(
        self, layer: LeanLayer, norms: tuple[Tensor, Tensor], states: Tensor, turns, new_keys: Tensor, new_values: Tensor,
        keys: Tensor, values: Tensor, mask: Tensor | None,
    ) -> Tensor:
        """states (n, d) -> (n, d). keys, values: what is attended to, the places that are written first included."""
        weights = self._weights
        count = states.size(0)
        heads = layer.qkv(self._norm(states, norms[0])).view(count, -1, weights.head_dim)
        turned = heads[:, : self._turned_heads]
        if layer.head_norms is not None:
            turned = F.rms_norm(turned, (weights.head_dim,), None, weights.eps).mul_(layer.head_norms)
        turned = self._turn(turned, turns)
        queries = turned[:, : weights.query_heads]
        self._write(
            new_keys, new_values, turned[:, weights.query_heads :].permute(1, 2, 0),
            heads[:, self._turned_heads :].transpose(0, 1),
        )
        if count == 1:
            queries = queries.view(weights.key_heads, self._group, weights.head_dim)
        elif self._group == 1:
            queries = queries.transpose(0, 1)
        else:  # rows of one key head: position by position, in each the heads that share it
            queries = queries.view(count, weights.key_heads, -1).transpose(0, 1)
            queries = queries.reshape(weights.key_heads, count * self._group, weights.head_dim)
        scores = torch.bmm(queries, keys) if mask is None else torch.baddbmm(mask, queries, keys)
        # In low precision the exponentials are summed in fp32, as transformers does.
        scores = scores.softmax(-1) if self._exact else scores.softmax(-1, dtype=torch.float32).to(self._dtype)
        seen = torch.bmm(scores, values)
        if count > 1:
            seen = seen.view(weights.key_heads, count, -1).transpose(0, 1)
        states = layer.output(seen.reshape(count, -1), states)
        gate, up = layer.gate_up(self._norm(states, norms[1])).chunk(2, dim=-1)
        gate = F.silu(gate, inplace=True) if weights.silu else weights.activation(gate)
        return layer.down(gate.mul_(up), states)

    def _write(self, keys_place: Tensor, values_place: Tensor, keys: Tensor, values: Tensor) -> None:
        """Put keys (key heads, head_dim, n) and values (key heads, n, head_dim) of one layer into the cache."""
        keys_place.copy_(keys)
        values_place.copy_(values)

    def _small_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        # x / sqrt(mean(x^2) + eps) is x / sqrt(sum(x^2) + d eps), times sqrt(d), which the scaled weight carries.
        return (x * torch.linalg.vecdot(x, x).add_(self._eps).rsqrt_().unsqueeze_(-1)).mul_(weight)

    def _any_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self._weights.eps)

    def _turn(self, heads: Tensor, turns) -> Tensor:
        """Rotary position embedding: heads (n, H, head_dim), turned and scaled -> the same shape."""
        if isinstance(turns, Tensor):
            return torch.bmm(heads, turns)
        cos, sin = turns
        return (heads * cos).addcmul_(heads.roll(self._weights.head_dim // 2, -1), sin)

    def _turns_of(self, start: int, count: int):
        """What turns the positions start..start+count-1: matrices (n, head_dim, head_dim), or cosines and sines, each
        (n, 1, head_dim). Queries and keys both carry the root of attention's scale, which so costs nothing."""
        if count > _FEW or not self._exact:
            return self._cos[start : start + count], self._sin[start : start + count]
        return self._turn_matrices(start, count)

    def _turn_matrices(self, start: int, count: int) -> Tensor:
        """(count, head_dim, head_dim), for up to _AFTER positions."""
        at = start - self._turns_from
        if self._turns is None or at < 0 or at + count > len(self._turns):
            self._turns_from = max(0, start - _BEFORE)
            at = start - self._turns_from
            part = slice(self._turns_from, start + _AFTER)
            eye = torch.eye(self._weights.head_dim, device=self.device, dtype=self._dtype)
            # Row i of a matrix says where x_i goes: to i by the cosine, to its partner half a head away by the sine.
            half = eye.roll(self._weights.head_dim // 2, 1)
            self._turns = (self._cos[part] * eye).addcmul_(self._sin[part], half)
        return self._turns[at : at + count]

    def _windows(self, first: int, last: int):
        return {layer.window for layer in self._weights.layers[first:last]}

    def _past(self, window: int | None, first: int, last: int, start: int, count: int):
        """What layers with this window attend to: keys, values, one a layer, and the mask to add to the scores."""
        begin = 0 if window is None else max(0, start + 1 - window)
        end = start + count
        keys = self._keys[first:last, :, :, begin:end].unbind()
        values = self._values[first:last, :, begin:end].unbind()
        if count == 1:
            return keys, values, None
        if window is None and count <= _STEPS:
            mask = self._stair(start, count)
        else:
            mask = self._staircase(count, end - begin, start + 1 - begin)
            if window is not None:
                hidden = torch.full_like(mask, -torch.inf).tril_(start - begin - window)
                mask = mask + hidden
            mask = self._for_each_head(mask)
        return keys, values, mask

    def _stair(self, start: int, count: int) -> Tensor | None:
        """The mask of up to _STEPS positions behind ``start`` others that all are seen: (count x group, start + count)."""
        if count == 1:
            return None
        return self._stairs[: count * self._group, self._room - start : self._room + count]

    def _staircase(self, rows: int, columns: int, first: int) -> Tensor:
        """(rows, columns): -inf from column ``first`` + row on, 0 before."""
        return torch.full((rows, columns), -torch.inf, device=self.device, dtype=self._dtype).triu_(first)

    def _for_each_head(self, mask: Tensor) -> Tensor:
        return mask.repeat_interleave(self._group, dim=0) if self._group > 1 else mask

    def _make_room(self, end: int) -> None:
        if end > self._room:
            self._allocate(max(end, 2 * self._room))

    def _allocate(self, room: int) -> None:
        """Make room for that many positions, keeping what is there."""
        weights = self._weights
        # Not inference tensors: they are written in place, also by callers outside of inference mode.
        with torch.inference_mode(False), torch.no_grad():
            options = {"device": self.device, "dtype": self._dtype}
            keys = torch.empty(self.layers, weights.key_heads, weights.head_dim, room, **options)
            values = torch.empty(self.layers, weights.key_heads, room, weights.head_dim, **options)
            if self._keys is not None:
                most = max(self._lengths)
                keys[..., :most] = self._keys[..., :most]
                values[:, :, :most] = self._values[:, :, :most]
            self._keys, self._values, self._room = keys, values, room
            self._stairs = self._for_each_head(self._staircase(_STEPS, room + _STEPS, room + 1))
            root = weights.scale**0.5
            cos, sin = weights.rotation(room)
            self._cos, self._sin = cos[:room, None] * root, sin[:room, None] * root


def open_lean_stream(loaded: LoadedModel, length: int = 0) -> LeanStream | None:
    """A lean stream for this model, or None where its family or its state doesn't allow one.

    length: positions it must have room for (0: unknown). On a GPU it runs captured graphs where they are faster.
    """
    weights = lean_weights(loaded)
    if weights is None:
        return None
    if loaded.device.type == "cuda":
        from specviz.models import graphs  # builds on this module

        captured = graphs.open_graph_stream(loaded, weights, length)
        if captured is not None:
            return captured
    return LeanStream(loaded, weights, length)
