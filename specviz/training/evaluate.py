"""How good a model is: held-out loss, agreement of its exits, and how many drafted tokens it would accept.

Acceptance is counted without a decoding loop: under greedy decoding a drafter's context is the target's own output as long
as its drafts agree, so one teacher-forced pass over the finished continuation says which drafts would be right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from specviz.training.corpus import Corpus
from specviz.training.forward import TrainingForward

WINDOWS, WINDOW = 64, 256


class HeldOut:
    """Fixed windows of held-out text, spread evenly."""

    def __init__(self, corpus: Corpus, device: torch.device | str = "cpu") -> None:
        ids = corpus.held_out
        window = min(WINDOW, len(ids) - 1)
        starts = np.linspace(0, len(ids) - window - 1, min(WINDOWS, max(1, len(ids) // window))).astype(int)
        rows = np.stack([ids[start : start + window + 1] for start in starts]).astype(np.int64)
        self.windows = torch.from_numpy(rows).to(device)

    @torch.no_grad()
    def measure(self, forward: TrainingForward, rows: int = 8) -> dict:
        """``held_out_loss`` in nats a token, and ``agreement``: for every exit the share of positions at which it picks the
        token that the full model picks (the last is 1)."""
        loss, agreeing, count = 0.0, torch.zeros(len(forward.blocks)), 0
        for part in self.windows.split(rows):
            states = forward.states(part[:, :-1])
            logits = F.linear(forward.normed(states[-1]), forward.head).float()
            loss += F.cross_entropy(logits, part[:, 1:].reshape(-1), reduction="sum").item()
            final = logits.argmax(-1)
            for index, state in enumerate(states[:-1]):
                pick = F.linear(forward.normed(state), forward.head).argmax(-1)
                agreeing[index] += (pick == final).sum().item()
            agreeing[-1] += len(final)
            count += len(final)
        return {
            "held_out_loss": round(loss / count, 4),
            "agreement": [round(share, 4) for share in (agreeing / count).tolist()],
        }


def held_out_prompts(corpus: Corpus, count: int, length: int = 96) -> Tensor:
    """(count, length): from the middle of as many different held-out files as there are, then from other places in them."""
    ends = [*corpus.held_out_starts[1:], len(corpus.held_out)]
    spans = [(a, b) for a, b in zip(corpus.held_out_starts, ends, strict=True) if b - a > 2 * length]
    prompts = []
    for turn in range(-(-count // len(spans))):
        for begin, end in spans:
            start = begin + int((end - begin - length) * (0.5, 0.2, 0.8, 0.35, 0.65)[turn % 5])
            prompts.append(np.asarray(corpus.held_out[start : start + length]).astype(np.int64))
    return torch.from_numpy(np.stack(prompts[:count]))


@torch.no_grad()
def greedy(model, prompts: Tensor, tokens: int = 64) -> Tensor:
    """(batch, length) -> (batch, length + tokens), greedy, the end token like any other."""
    ids, cache, step = prompts, None, prompts
    for _ in range(tokens):
        out = model(step, cache=cache, use_cache=True)
        cache = out.cache
        step = out.logits[:, -1:].argmax(-1)
        ids = torch.cat((ids, step), dim=1)
    return ids


def iterations(match: Sequence[bool], lookahead: int) -> tuple[int, int, int]:
    """(drafted, accepted, target forwards) of constant lookahead over one continuation.

    ``match[t]``: the drafter, given everything before token t of the continuation, picks that token. An iteration that
    starts at t drafts min(lookahead, tokens left - 1) tokens (one is left for the target), accepts the matches up to the
    first miss and emits one token more.
    """
    position = drafted = accepted = forwards = 0
    while position < len(match):
        size = min(lookahead, len(match) - position - 1)
        run = 0
        while run < size and match[position + run]:
            run += 1
        drafted, accepted, forwards = drafted + size, accepted + run, forwards + 1
        position += run + 1
    return drafted, accepted, forwards


def acceptance(match: Tensor, lookahead: int = 4) -> dict:
    """Over many continuations, (count, tokens) of bool: drafted, accepted, their ratio, tokens a target forward."""
    drafted = accepted = forwards = 0
    for row in match.tolist():
        counts = iterations(row, lookahead)
        drafted, accepted, forwards = drafted + counts[0], accepted + counts[1], forwards + counts[2]
    return {
        "drafted": drafted,
        "accepted": accepted,
        "rate": round(accepted / max(drafted, 1), 4),
        "tokens_per_forward": round(match.numel() / max(forwards, 1), 3),
    }


def exit_matches(model, sequences: Tensor, prompt: int) -> Tensor:
    """(layers, count, tokens) of bool: whether each exit picks the continuation's token. sequences (count, length)."""
    picks = TrainingForward(model).picks(sequences[:, :-1])
    return picks[:, :, prompt - 1 :] == sequences[None, :, prompt:]


def ends_in_loop(text: str, times: int = 3) -> bool:
    """Whether the last whole line is repeated ``times`` times at the end (blank lines aside)."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(lines) < times:
        return False
    for drop in (0, 1):  # the last line may have been cut off by the budget
        tail = lines[: len(lines) - drop][-times:]
        if len(tail) == times and len(set(tail)) == 1:
            return True
    return False


def ends_periodic(ids: Sequence[int], tail: int = 24, longest: int = 8) -> bool:
    """Whether the last ``tail`` tokens repeat with a period of at most ``longest``: a loop inside a line too."""
    end = list(ids)[-tail:]
    return any(all(end[i] == end[i - period] for i in range(period, len(end))) for period in range(1, longest + 1))


def full_report(model, tokenizer, prompts: Tensor, draft=None, lookahead: int = 4, tokens: int = 64) -> dict:
    """Greedy continuations of held-out prompts, and what each exit (and ``draft``) would have had accepted."""
    model.eval()
    length = prompts.shape[1]
    sequences = torch.cat([greedy(model, part, tokens) for part in prompts.split(64)])
    matches = torch.cat([exit_matches(model, part, length) for part in sequences.split(32)], dim=1)
    texts = [tokenizer.decode(row[length:]) for row in sequences]
    flowing = torch.tensor([not ends_periodic(row[length:].tolist()) for row in sequences])
    report = {
        "prompts": len(prompts),
        "tokens": tokens,
        "lookahead": lookahead,
        # exit E drafts with the first E layers, as everywhere else in specviz
        "exits": {str(index + 1): acceptance(part, lookahead) for index, part in enumerate(matches[:-1])},
        "loops": sum(map(ends_in_loop, texts)),
        # drafts are easy inside a loop, so the rest is counted by itself too
        "periodic": int((~flowing).sum()),
        "exits_without_periodic": {str(e + 1): acceptance(part[flowing], lookahead) for e, part in enumerate(matches[:-1])},
    }
    if draft is not None:
        draft.eval()
        match = torch.cat([exit_matches(draft, part, length)[-1] for part in sequences.split(32)])
        report["draft"] = acceptance(match, lookahead)
        report["draft_without_periodic"] = acceptance(match[flowing], lookahead)
    return report
