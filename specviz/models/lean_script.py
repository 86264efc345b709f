"""The layers of a small model as one TorchScript module: the same operations, without Python between them.

In models of a few megabytes a third of a layer's time goes into Python's part of its thirty calls. Compiled, the loop
over the layers is interpreted by PyTorch itself. The module holds the matrices, so that a call hands over only what is
new. TorchScript is on its way out of PyTorch, so this is tried, and without it the lean stream's own loop does the same.
"""

import warnings

import torch
from torch import Tensor, nn

from specviz.models.int8 import ENDS, LEAST

MOST_TOKENS = 8  # longer blocks spend their time in arithmetic


class ScriptedLayers(nn.Module):
    """qkv, output, gate_up, down: one matrix (in, out) a layer. qkv_bias: one bias a layer, or empty.
    embedding: (V, d), head: (d, rows). head_ids: the tokens (rows,), ascending, whose logits a trimmed head gives, or empty,
    where it gives all of them. eps: that of the norms, times d."""

    qkv_bias: list[Tensor]

    def __init__(
        self, qkv, qkv_bias, output, gate_up, down, embedding: Tensor, head, head_ids: Tensor, query_heads: int,
        key_heads: int, head_dim: int, eps: float,
    ):
        super().__init__()
        self.qkv, self.qkv_bias, self.output, self.gate_up, self.down = qkv, qkv_bias, output, gate_up, down
        self.embedding, self.head_matrix, self.head_ids = embedding, head, head_ids
        self.layers = len(down)
        self.query_heads, self.key_heads, self.head_dim = query_heads, key_heads, head_dim
        # A tensor: a number would be made into one, of another type, and converted, at every use.
        self.eps = torch.full((1, 1, 1), eps)

    def forward(
        self, states: Tensor, norms: list[Tensor], keys: Tensor, values: Tensor, turns: Tensor, mask: Tensor | None,
        start: int, first: int, last: int,
    ) -> Tensor:
        """Layers first..last-1 over states (n, d) -> (n, d), written into the cache at ``start``.

        norms: 2 L + 1 of (d,), a layer's two beside each other, the final one at the end. keys: (L, heads, head_dim,
        room), values: (L, heads, room, head_dim). turns: (n, head_dim, head_dim). mask: added to the scores, for n > 1.
        """
        count = states.size(0)
        end = start + count
        query_heads, key_heads, head_dim = self.query_heads, self.key_heads, self.head_dim
        group = query_heads // key_heads
        # All layers' places in the cache with one operation each, not one a layer.
        own_keys, own_values = keys.narrow(0, first, last - first), values.narrow(0, first, last - first)
        new_keys, past_keys = own_keys.narrow(3, start, count).unbind(), own_keys.narrow(3, 0, end).unbind()
        new_values, past_values = own_values.narrow(2, start, count).unbind(), own_values.narrow(2, 0, end).unbind()
        for i in range(first, last):
            heads = self._qkv(self._normed(states, norms[2 * i]), i)
            plain, value = heads.view(count, -1, head_dim).split_with_sizes([query_heads + key_heads, key_heads], 1)
            queries, key = torch.bmm(plain, turns).split_with_sizes([query_heads, key_heads], 1)
            new_keys[i - first].copy_(key.permute(1, 2, 0))
            new_values[i - first].copy_(value.transpose(0, 1))
            if count == 1:
                queries = queries.view(key_heads, group, head_dim)
            elif group == 1:
                queries = queries.transpose(0, 1)
            else:
                queries = queries.view(count, key_heads, -1).transpose(0, 1).reshape(key_heads, count * group, head_dim)
            past = past_keys[i - first]
            scores = torch.bmm(queries, past) if mask is None else torch.baddbmm(mask, queries, past)
            seen = torch.bmm(scores.softmax(-1), past_values[i - first])
            if count > 1:
                seen = seen.view(key_heads, count, -1).transpose(0, 1)
            states = self._add_output(states, seen.reshape(count, -1), i)
            gate, up = self._gate_up(self._normed(states, norms[2 * i + 1]), i).chunk(2, 1)
            states = self._add_down(states, torch.nn.functional.silu(gate, inplace=True).mul_(up), i)
        return states

    # The products, which another kind of weights makes otherwise: x (n, in), layer i.

    def _qkv(self, x: Tensor, i: int) -> Tensor:
        return torch.addmm(self.qkv_bias[i], x, self.qkv[i]) if len(self.qkv_bias) > 0 else torch.mm(x, self.qkv[i])

    def _add_output(self, states: Tensor, x: Tensor, i: int) -> Tensor:
        return torch.addmm(states, x, self.output[i])

    def _gate_up(self, x: Tensor, i: int) -> Tensor:
        return torch.mm(x, self.gate_up[i])

    def _add_down(self, states: Tensor, x: Tensor, i: int) -> Tensor:
        return torch.addmm(states, x, self.down[i])

    def _head(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.head_matrix)

    def _normed(self, x: Tensor, norm: Tensor) -> Tensor:
        """x / sqrt(sum(x^2) + eps) * norm, for x (n, d): as a product of each row with itself it is two operations less."""
        root = torch.baddbmm(self.eps, x.unsqueeze(1), x.unsqueeze(2)).rsqrt_()
        return (x * root.view(-1, 1)).mul_(norm)

    @torch.jit.export
    def head(self, states: Tensor, norms: list[Tensor]) -> Tensor:
        """Final norm and LM head: (n, d) -> logits (n, V)."""
        return self._widened(self._head(self._normed(states, norms[-1])), self.embedding.size(0))

    def _widened(self, logits: Tensor, size: int) -> Tensor:
        """Of a trimmed head, (n, rows) -> (n, size), -inf for every other token."""
        if len(self.head_ids) == 0:
            return logits
        wide = torch.full((logits.size(0), size), float("-inf"))
        return wide.index_copy_(1, self.head_ids.narrow(0, 0, logits.size(1)), logits)

    @torch.jit.export
    def logits(
        self, ids: Tensor, norms: list[Tensor], keys: Tensor, values: Tensor, turns: Tensor, mask: Tensor | None,
        start: int, keep: int,
    ) -> Tensor:
        """Everything from token ids (n,) to the logits (keep, V) of the last ``keep``."""
        states = torch.nn.functional.embedding(ids, self.embedding)
        states = self.forward(states, norms, keys, values, turns, mask, start, 0, self.layers)
        return self.head(states.narrow(0, states.size(0) - keep, keep), norms)

    @torch.jit.export
    def draft(
        self, ids: Tensor, norms: list[Tensor], keys: Tensor, values: Tensor, turns: Tensor, mask: Tensor | None,
        start: int, last: int, most: int, threshold: float, vocabulary: int, ends: list[int], read_last: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Behind token ids (n,), guess up to ``most`` tokens with the first ``last`` layers and the head, greedily.

        Stops behind a token of ``ends``, or one whose probability is below the threshold. Returns tokens (k,), logits
        (k, vocabulary) and the states (m, d) of all positions that were read; read_last: the last guess among them.
        turns: (n + most, head_dim, head_dim). mask: for the ids, where n > 1.
        """
        feed, at = ids, 0
        tokens: list[Tensor] = []
        rows: list[Tensor] = []
        states: list[Tensor] = []
        going = True
        kept = vocabulary if len(self.head_ids) == 0 else int((self.head_ids < vocabulary).sum())
        while going or read_last:
            count = feed.size(0)
            x = torch.nn.functional.embedding(feed, self.embedding)
            mask = mask if count > 1 else None
            states.append(self.forward(x, norms, keys, values, turns.narrow(0, at, count), mask, start + at, 0, last))
            at += count
            if not going:
                break
            # Over the tokens of a trimmed head alone: the others have no probability.
            row = self._head(self._normed(states[-1].narrow(0, count - 1, 1), norms[-1])).narrow(1, 0, kept)
            feed = row.argmax(-1)
            if len(self.head_ids) > 0:
                feed = self.head_ids.index_select(0, feed)
            tokens.append(feed)
            rows.append(row)
            going = len(tokens) < most and int(feed) not in ends
            if going and threshold > 0.0:
                going = float(row.softmax(-1).max()) >= threshold
        return torch.cat(tokens), self._widened(torch.cat(rows), vocabulary), torch.cat(states)


class ScriptedInt8Layers(ScriptedLayers):
    """The same with weights in 8 bits: qkv, output, gate_up, down and head hold what ``int8.packed`` made of them.
    narrow: see there."""

    def __init__(self, *parts, narrow: bool):
        super().__init__(*parts)
        self.narrow = narrow
        self.ends, self.least = ENDS, LEAST

    def _ranged(self, x: Tensor) -> tuple[Tensor, Tensor]:
        size = x.abs().amax(1, True).clamp_min_(self.least)
        return torch.cat((x / size, self.ends.expand(x.size(0), 2)), 1), size

    def _qkv(self, x: Tensor, i: int) -> Tensor:
        x, size = self._ranged(x)
        y = torch.ops.quantized.linear_dynamic(x, self.qkv[i], self.narrow).mul_(size)
        return y.add_(self.qkv_bias[i]) if len(self.qkv_bias) > 0 else y

    def _add_output(self, states: Tensor, x: Tensor, i: int) -> Tensor:
        x, size = self._ranged(x)
        return torch.addcmul(states, torch.ops.quantized.linear_dynamic(x, self.output[i], self.narrow), size)

    def _gate_up(self, x: Tensor, i: int) -> Tensor:
        x, size = self._ranged(x)
        return torch.ops.quantized.linear_dynamic(x, self.gate_up[i], self.narrow).mul_(size)

    def _add_down(self, states: Tensor, x: Tensor, i: int) -> Tensor:
        x, size = self._ranged(x)
        return torch.addcmul(states, torch.ops.quantized.linear_dynamic(x, self.down[i], self.narrow), size)

    def _head(self, x: Tensor) -> Tensor:
        x, size = self._ranged(x)
        return torch.ops.quantized.linear_dynamic(x, self.head_matrix, self.narrow).mul_(size)


def compiled(layers: ScriptedLayers):
    """The module compiled, or None where this build of PyTorch doesn't compile it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # announces TorchScript's end
        try:
            return torch.jit.script(layers)
        except Exception:  # whatever a compiler that is being taken apart may raise
            return None
