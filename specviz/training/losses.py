"""Cross-entropy of several exits through one head, chunk by chunk, gradients computed on the way forward.

The logits of a batch are its largest tensor (4,096 rows by 2,048 tokens are 32 MB for each exit); a chunk of them stays in
the cache, and neither logits nor probabilities are kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 512


class _ExitLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, head, targets, weights, own_targets, *normed):
        final = len(normed) - 1
        rows = [len(part) for part in normed]
        losses = torch.zeros(len(normed), device=head.device)
        grads = [torch.empty_like(part) for part in normed]
        grad_head = torch.zeros_like(head)
        for begin in range(0, rows[final], CHUNK):
            own = None
            for index in range(final, -1, -1):  # the full model first: the exits may learn from it
                part = slice(begin, min(begin + CHUNK, rows[index]))
                if begin >= rows[index]:
                    continue
                wanted = targets[part, None]
                logits = F.linear(normed[index][part], head).float()
                if index == final and own_targets:
                    own = logits.softmax(-1)
                log_probs = F.log_softmax(logits, dim=-1)
                losses[index] -= log_probs.gather(1, wanted).sum() / rows[index]
                if not weights[index]:
                    grads[index][part] = 0
                    continue
                grad = log_probs.exp_()
                if index != final and own_targets:
                    grad.sub_(own[: len(grad)])
                else:
                    grad.scatter_add_(1, wanted, grad.new_full((1, 1), -1.0).expand_as(wanted))
                grad = grad.mul_(weights[index] / rows[index]).to(head.dtype)
                torch.mm(grad, head, out=grads[index][part])
                grad_head.addmm_(grad.t(), normed[index][part])
        ctx.save_for_backward(grad_head, *grads)
        ctx.mark_non_differentiable(losses)
        total = sum(weight * loss for weight, loss in zip(weights, losses, strict=True))
        return total, losses

    @staticmethod
    def backward(ctx, grad, _):
        grad_head, *grads = ctx.saved_tensors
        return grad * grad_head, None, None, None, *(grad * part for part in grads)


def exit_losses(
    head: Tensor, normed: Sequence[Tensor], targets: Tensor, weights: Sequence[float], own_targets: bool = False
) -> tuple[Tensor, Tensor]:
    """Weighted sum of the exits' losses, and each exit's own mean cross-entropy against the data, in nats.

    head (vocabulary, hidden); normed: one (rows, hidden) for each exit, the full model last, earlier ones may have fewer rows
    (the first rows of the batch); targets (rows,). ``own_targets``: the earlier exits learn the full model's own
    distribution in place of the data; this is not part of the published recipe. The sum returned is still that of the losses
    against the data, only its gradient is the other one.
    """
    with torch.autocast(head.device.type, enabled=False):
        normed = [part.to(head.dtype) for part in normed]
        return _ExitLosses.apply(head, targets, tuple(weights), own_targets, *normed)
