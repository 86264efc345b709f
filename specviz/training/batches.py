"""A Llama-shaped model that answers many prompts at once, and says what it thought at every position.

The rows of a batch end together on the right, so that one position is added to all of them in one go; rows that have
finished are taken out of the batch. What is kept of a position is the final normed state: the head turns it into the
model's whole distribution, at a hundredth of its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from specviz.training.forward import rotary_tables

SHRINK = 0.85  # the batch is made smaller when this share of its rows, or less, is still being written


@dataclass(frozen=True)
class Answer:
    """ids: prompt and answer, uint16 (n,); states: (n, hidden) fp16, the final normed state at every position but the
    last one, whose row is 0; picks: uint16 (n,), the token the model would choose behind every position (the last: 0)."""

    ids: np.ndarray
    prompt: int  # tokens of the prompt
    states: np.ndarray
    picks: np.ndarray


class BatchModel:
    """The layers of a ``LlamaForCausalLM`` over a batch with one cache; fp32 on a CPU."""

    def __init__(self, model) -> None:
        config = model.config
        self.config, self.embedding = config, model.model.embed_tokens.weight
        self.head, self.final_norm = model.lm_head.weight, model.model.norm.weight
        self.heads, self.kv_heads, self.width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.layers = []
        for block in model.model.layers:
            attention, mlp = block.self_attn, block.mlp
            self.layers.append((
                block.input_layernorm.weight,
                torch.cat([part.weight for part in (attention.q_proj, attention.k_proj, attention.v_proj)]),
                attention.o_proj.weight,
                block.post_attention_layernorm.weight,
                torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)),
                mlp.down_proj.weight,
            ))  # fmt: skip

    def open(self, rows: int, room: int) -> None:
        """Make a cache for that many rows and positions."""
        shape = (rows, self.kv_heads, room, self.width)
        self.keys = [torch.empty(shape) for _ in self.layers]
        self.values = [torch.empty(shape) for _ in self.layers]
        self.cos, self.sin = rotary_tables(self.config, room)

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        for cache in (self.keys, self.values):
            for index, part in enumerate(cache):
                cache[index] = part[rows]

    def run(self, ids: Tensor, start: int, mask: Tensor, rows: slice = slice(None)) -> Tensor:
        """ids (batch, n) at the positions from ``start`` on -> normed states (batch, n, hidden).

        mask: True where a position is seen, (batch, 1, n, start + n)."""
        batch, count = ids.shape
        end, group = start + count, self.heads // self.kv_heads
        cos, sin = self.cos[start:end], self.sin[start:end]
        x = F.embedding(ids, self.embedding)
        mask = torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf)
        if count == 1:
            mask = mask.expand(-1, -1, group, -1)
        for index, (norm_1, qkv, out, norm_2, gate_up, down) in enumerate(self.layers):
            heads = F.linear(self._norm(x, norm_1), qkv).view(batch, count, -1, self.width)
            turned, value = heads.split((self.heads + self.kv_heads, self.kv_heads), dim=2)
            turned = torch.addcmul(turned * cos, turned.roll(self.width // 2, -1), sin)
            query, key = turned.transpose(1, 2).split((self.heads, self.kv_heads), dim=1)
            keys, values = self.keys[index][rows], self.values[index][rows]
            keys[:, :, start:end] = key
            values[:, :, start:end] = value.transpose(1, 2)
            keys, values = keys[:, :, :end], values[:, :, :end]
            if count == 1:  # the heads that share a key are the rows of one product
                seen = F.scaled_dot_product_attention(query.view(batch, self.kv_heads, group, -1), keys, values, mask)
                seen = seen.reshape(batch, 1, -1)
            else:
                seen = F.scaled_dot_product_attention(query, keys, values, mask, enable_gqa=group > 1)
                seen = seen.transpose(1, 2).reshape(batch, count, -1)
            x = x + F.linear(seen, out)
            gate, up = F.linear(self._norm(x, norm_2), gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate).mul_(up), down)
        return self._norm(x, self.final_norm)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.rms_norm_eps)


@torch.no_grad()
def answer(
    model: BatchModel, prompts: Sequence[Sequence[int]], temperatures: Sequence[float], limit: int, ends: frozenset[int],
    generator: torch.Generator, at_once: int = 2048,
) -> list[Answer]:
    """The model's continuation of every prompt, of at most ``limit`` tokens; a token of ``ends`` ends it.

    temperatures: one for each prompt, 0 is greedy. at_once: prompt tokens that are read in one go.
    """
    count, longest = len(prompts), max(map(len, prompts))
    room = longest + limit
    model.open(count, room)
    ids = torch.zeros(count, room, dtype=torch.long)
    states = torch.zeros(count, room, model.final_norm.shape[0], dtype=torch.float16)
    picks = torch.zeros(count, room, dtype=torch.long)
    begins = torch.tensor([longest - len(prompt) for prompt in prompts])
    for row, prompt in enumerate(prompts):
        ids[row, begins[row] : longest] = torch.tensor(prompt)
    seen = torch.arange(room) >= begins[:, None]
    causal = torch.ones(longest, longest, dtype=torch.bool).tril_()
    for rows in torch.arange(count).split(max(1, at_once // longest)):
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        # A place before the prompt sees itself, since a row that sees nothing has no mean.
        mask = (seen[part, None, None, :longest] & causal) | torch.eye(longest, dtype=torch.bool)
        normed = model.run(ids[part, :longest], 0, mask, part)
        states[part, :longest] = normed
        for row in range(part.start, part.stop):
            picks[row, begins[row] : longest] = F.linear(normed[row - part.start, begins[row] :], model.head).argmax(-1)
    active, finish, last = torch.arange(count), torch.full((count,), room), states[:, longest - 1].float()
    heat = torch.tensor(temperatures)
    for position in range(longest, room):
        logits = F.linear(last, model.head)
        chosen = picks[active, position - 1] = logits.argmax(-1)
        warm = heat[active] > 0
        if warm.any():
            warmed = torch.softmax(logits[warm] / heat[active][warm, None], -1)
            chosen = chosen.clone()
            # By hand, since multinomial draws a number for every token of the vocabulary.
            summed = warmed.cumsum(-1)
            point = torch.rand(len(summed), 1, generator=generator) * summed[:, -1:]
            chosen[warm] = torch.searchsorted(summed, point, right=True)[:, 0].clamp_(max=summed.shape[1] - 1)
        # Rows that ended go on unread until the batch is made smaller.
        ids[active, position] = chosen
        ended = torch.tensor([token in ends for token in chosen.tolist()]) & (finish[active] == room)
        finish[active[ended]] = position + 1
        left = finish[active] == room
        if position + 1 == room or not left.any():
            break
        if left.float().mean() <= SHRINK:
            model.keep(left.nonzero()[:, 0])
            active = active[left]
        mask = seen[active, None, None, : position + 1]
        last = model.run(ids[active, position, None], position, mask)[:, 0]
        states[active, position] = last.half()
    found = []
    for row, prompt in enumerate(prompts):
        part = slice(int(begins[row]), int(finish[row]))
        states[row, part.stop - 1], picks[row, part.stop - 1] = 0, 0
        found.append(Answer(
            ids[row, part].numpy().astype(np.uint16), len(prompt), states[row, part].numpy(),
            picks[row, part].numpy().astype(np.uint16),
        ))  # fmt: skip
    return found
