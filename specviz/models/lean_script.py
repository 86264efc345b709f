"""The layers of a small model as one TorchScript function: the same operations, without Python between them.

In models of a few megabytes a third of a layer's time goes into Python's part of its thirty calls. Compiled, the loop
over the layers is interpreted by PyTorch itself. TorchScript is on its way out of PyTorch, so this is tried, and
without it the lean stream's own loop does the same.
"""

from __future__ import annotations

import functools
import warnings

import torch

MOST_TOKENS = 8  # longer blocks spend their time in arithmetic


def _run_layers(
    states, qkv, qkv_bias, output, gate_up, down, input_norms, post_norms, keys, values, turns, mask, start, first, last,
    query_heads, group, eps,
):
    # type: (Tensor, List[Tensor], List[Tensor], List[Tensor], List[Tensor], List[Tensor], List[Tensor], List[Tensor], List[Tensor], List[Tensor], Tensor, Optional[Tensor], int, int, int, int, int, float) -> Tensor
    count = states.size(0)
    end = start + count
    key_heads = query_heads // group
    head_dim = turns.size(2)
    for i in range(first, last):
        x = (states * torch.linalg.vecdot(states, states).add_(eps).rsqrt_().unsqueeze_(-1)).mul_(input_norms[i])
        heads = torch.addmm(qkv_bias[i], x, qkv[i]) if len(qkv_bias) > 0 else torch.mm(x, qkv[i])
        heads = heads.view(count, -1, head_dim)
        turned = torch.bmm(heads.narrow(1, 0, query_heads + key_heads), turns)
        keys[i].narrow(2, start, count).copy_(turned.narrow(1, query_heads, key_heads).permute(1, 2, 0))
        values[i].narrow(1, start, count).copy_(heads.narrow(1, query_heads + key_heads, key_heads).transpose(0, 1))
        queries = turned.narrow(1, 0, query_heads)
        if count == 1:
            queries = queries.view(key_heads, group, head_dim)
        elif group == 1:
            queries = queries.transpose(0, 1)
        else:
            queries = queries.view(count, key_heads, -1).transpose(0, 1).reshape(key_heads, count * group, head_dim)
        past = keys[i].narrow(2, 0, end)
        scores = torch.bmm(queries, past) if mask is None else torch.baddbmm(mask, queries, past)
        seen = torch.bmm(scores.softmax(-1), values[i].narrow(1, 0, end))
        if count > 1:
            seen = seen.view(key_heads, count, -1).transpose(0, 1)
        states = torch.addmm(states, seen.reshape(count, -1), output[i])
        x = (states * torch.linalg.vecdot(states, states).add_(eps).rsqrt_().unsqueeze_(-1)).mul_(post_norms[i])
        both = torch.mm(x, gate_up[i])
        half = both.size(1) // 2
        gate = torch.nn.functional.silu(both.narrow(1, 0, half), inplace=True)
        states = torch.addmm(states, gate.mul_(both.narrow(1, half, half)), down[i])
    return states


@functools.cache
def compiled():
    """The compiled function, or None where this build of PyTorch doesn't compile it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # announces TorchScript's end
        try:
            return torch.jit.script(_run_layers)
        except Exception:  # whatever a compiler that is being taken apart may raise
            return None
