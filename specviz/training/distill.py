"""A shallow draft model that learns what a target would say: on held text, and on text the target writes itself.

The draft is trained on the target's own next-token distribution (its logits at every position, computed on the way), not on
the data: what counts for a draft is to pick what the target picks. Part of every batch is text that the target wrote,
because that is what a draft sees when it is used.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from specviz.errors import UsageError
from specviz.training.config import TrainConfig
from specviz.training.corpus import prepare
from specviz.training.evaluate import HeldOut, greedy
from specviz.training.files import write_atomically
from specviz.training.forward import TrainingForward
from specviz.training.tokenizer import load_tokenizer
from specviz.training.trainer import Trainer

PROMPT, WRITTEN = 64, 64  # tokens of corpus text before, and of the target's text in, one generated row
WRITE_BATCH = 256


class _ChoiceLoss(torch.autograd.Function):
    """Cross-entropy against a soft distribution, chunk by chunk; the gradient is found on the way forward."""

    @staticmethod
    def forward(ctx, head, normed, target_head, target_normed, sharpness, chunk=512):
        grad_head = torch.zeros_like(head) if ctx.needs_input_grad[0] else None
        grad_normed = torch.empty_like(normed)
        total, agreeing, rows = 0.0, 0, len(normed)
        for begin in range(0, rows, chunk):
            part = slice(begin, begin + chunk)
            wanted = F.linear(target_normed[part], target_head).float()
            chosen = wanted.argmax(-1)
            wanted = wanted.mul_(sharpness).softmax(-1)
            log_probs = F.log_softmax(F.linear(normed[part], head).float(), dim=-1)
            total -= (wanted * log_probs).sum()
            agreeing += (log_probs.argmax(-1) == chosen).sum()
            grad = log_probs.exp_().sub_(wanted).div_(rows).to(head.dtype)
            torch.mm(grad, head, out=grad_normed[part])
            if grad_head is not None:
                grad_head.addmm_(grad.t(), normed[part])
        ctx.save_for_backward(grad_head, grad_normed)
        agreement = torch.as_tensor(agreeing / rows)
        ctx.mark_non_differentiable(agreement)
        return total / rows, agreement

    @staticmethod
    def backward(ctx, grad, _):
        grad_head, grad_normed = ctx.saved_tensors
        return None if grad_head is None else grad * grad_head, grad * grad_normed, None, None, None, None


def choice_loss(
    head: Tensor, normed: Tensor, target_head: Tensor, target_normed: Tensor, sharpness: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy (nats) of a draft against the target's distribution raised to ``sharpness``, and the share of rows
    where both pick the same token. Shapes: heads (vocabulary, hidden), normed states (rows, hidden) of either model."""
    with torch.autocast(head.device.type, enabled=False):
        return _ChoiceLoss.apply(head, normed.to(head.dtype), target_head, target_normed.to(target_head.dtype), sharpness)


@torch.no_grad()
def write_texts(target: LlamaForCausalLM, ids: np.ndarray, rows: int, seed: int, path: Path) -> np.ndarray:
    """(rows, PROMPT + WRITTEN) uint16: pieces of ``ids``, each continued greedily by the target.

    Written to ``path`` after every batch, so that a run that was stopped does not write the same again.
    """
    done = np.load(path) if path.exists() else np.empty((0, PROMPT + WRITTEN), dtype=np.uint16)
    while len(done) < rows:
        generator = torch.Generator().manual_seed(seed * 7919 + len(done))
        count = min(WRITE_BATCH, rows - len(done))
        starts = torch.randint(0, len(ids) - PROMPT, (count,), generator=generator).tolist()
        prompts = torch.from_numpy(np.stack([ids[start : start + PROMPT] for start in starts]).astype(np.int64))
        texts = greedy(target, prompts.to(target.device), WRITTEN).cpu().numpy().astype(np.uint16)
        done = np.concatenate((done, texts))
        write_atomically(path, lambda stream, done=done: np.save(stream, done))
    return done[:rows]


class ChoiceHeldOut(HeldOut):
    """Held-out loss against the data, and the share of positions where the draft picks the target's token."""

    def __init__(self, corpus, device, target: TrainingForward) -> None:
        super().__init__(corpus, device)
        self.chosen = torch.cat([target.picks(part[:, :-1], [-1])[0] for part in self.windows.split(8)])

    @torch.no_grad()
    def measure(self, forward: TrainingForward, rows: int = 8) -> dict:
        report = super().measure(forward, rows)
        picks = torch.cat([forward.picks(part[:, :-1], [-1])[0] for part in self.windows.split(rows)])
        return {**report, "target_agreement": round((picks == self.chosen).float().mean().item(), 4)}


class DistillTrainer(Trainer):
    """A :class:`Trainer` whose loss is taken against the target's choices."""

    def __init__(self, config, corpus, folder, device, target: LlamaForCausalLM, written: np.ndarray | None) -> None:
        super().__init__(config, corpus, folder, device)
        self.target = TrainingForward(target.eval().requires_grad_(False).float().to(self.device))
        self.held_out = ChoiceHeldOut(corpus, self.device, self.target)
        self.written = None if written is None else torch.from_numpy(written.astype(np.int64))

    def loss(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        parts = [self.batch(generator)[:, :-1]]
        if self.written is not None:
            share = self.config.generated_share
            rows = round(share * self.config.batch_tokens / self.written.shape[1])
            chosen = torch.randint(0, len(self.written), (rows,), generator=generator)
            parts[0] = parts[0][: max(1, round((1 - share) * len(parts[0])))]
            parts.append(self.written[chosen].to(self.device))
        mine, theirs = [], []
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            for ids in parts:
                mine.append(self.forward.normed(self.forward.states(ids)[-1]))
                with torch.no_grad():
                    theirs.append(self.target.normed(self.target.states(ids)[-1]))
        loss, _ = choice_loss(
            self.forward.head, torch.cat(mine), self.target.head, torch.cat(theirs), self.config.sharpness
        )
        return loss, loss.detach()


@torch.no_grad()
def begin_with_embedding(draft: LlamaForCausalLM, target: LlamaForCausalLM) -> None:
    """Give a draft at least as wide as the target the target's embedding in its first columns: what tokens have in common
    need not be learned again."""
    wide = target.config.hidden_size
    if draft.config.hidden_size >= wide:
        draft.model.embed_tokens.weight[:, :wide] = target.model.embed_tokens.weight


def distill_trainer(config: TrainConfig, folder: Path, device: str) -> DistillTrainer:
    """Load the target, prepare corpus and the target's own texts, and set up the draft. UsageError without a target."""
    if not config.target or not (Path(config.target) / "config.json").exists():
        raise UsageError("distill needs a trained model to learn from: --target DIR, such as runs/layerskip/model")
    target = LlamaForCausalLM.from_pretrained(config.target, dtype=torch.float32, local_files_only=True).to(device)
    if target.config.vocab_size != config.shape.vocabulary:
        raise UsageError(f"--vocabulary {config.shape.vocabulary}: the target has {target.config.vocab_size} tokens")
    corpus = prepare(
        [Path(path) for path in config.corpus],
        config.shape.vocabulary,
        folder.parent / "corpus",
        tokenizer=load_tokenizer(config.target),
        stdlib=config.stdlib,
    )
    folder.mkdir(parents=True, exist_ok=True)
    written = None
    if config.generated_share > 0:
        print(f"the target writes {config.generated_rows} texts to learn from")
        written = write_texts(target, corpus.train, config.generated_rows, config.seed, folder / "written.npy")
    trainer = DistillTrainer(config, corpus, folder, device, target, written)
    begin_with_embedding(trainer.model, target)
    return trainer
