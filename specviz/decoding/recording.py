"""From what the loop did to the records of the log."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specviz.decoding.drafters import Draft
from specviz.decoding.methods import Method, Session
from specviz.decoding.sampling import Detail
from specviz.decoding.text import TextPieces, prompt_pieces
from specviz.trace import Alternative, DraftToken, Footer, Iteration, TargetToken


class Recorder:
    """Turns each iteration of one run into its record and keeps the run's totals."""

    prompt_pieces = staticmethod(prompt_pieces)

    def __init__(self, method: Method, session: Session, prompt_ids: Sequence[int], detail: Detail):
        self._tokenizer = method.target.tokenizer
        self._session = session
        self._detail = detail
        # A decoder's text begins with its start token, which is no part of what was asked for.
        self._pieces = TextPieces(self._tokenizer, [] if method.target.is_encoder_decoder else prompt_ids)
        self._names: dict[int, str] = {}
        self._position = len(session.sequence)
        self._iterations = self._drafted = self._accepted = 0
        self.tokens = 0

    def iteration(
        self,
        draft: Draft,
        accepted: int,
        token: int | None,
        logits: Tensor,
        probabilities: Tensor | None,
        seconds: tuple[float, float],
    ) -> Iteration:
        """The record of one iteration. logits, probabilities: the target's, (k+1, V)."""
        ids = draft.ids
        detail = self._detail
        if probabilities is None and (detail.target_probability or detail.alternatives):
            probabilities = torch.softmax(logits.float(), dim=-1)
        seen, own = self._target_probabilities(ids, accepted, token, probabilities)
        spoken = self._pieces
        tokens = []
        trial = spoken.fork()
        for index, pick in enumerate(draft.picks):
            tokens.append(
                DraftToken(
                    pick.id, trial.push(pick.id), pick.confidence, pick.entropy,
                    self._alternatives(pick.alternatives), seen[index],
                )
            )
            if index + 1 == accepted:
                spoken = trial.fork()
        ending = None
        if token is not None:
            ending = TargetToken(
                token, spoken.push(token), "bonus" if accepted == len(ids) else "correction", own,
                self._target_alternatives(probabilities[accepted]) if detail.alternatives else (),
            )
        self._pieces = spoken
        record = Iteration(
            index=self._iterations, start=self._position, draft=tuple(tokens), stop=draft.stop,
            accepted=accepted, ending=ending, policy=self._session.policy.state(),
            draft_seconds=seconds[0], verify_seconds=seconds[1],
        )
        self._iterations += 1
        self._drafted += len(ids)
        self._accepted += accepted
        self._position += len(record.ids)
        self.tokens += len(record.ids)
        return record

    def footer(self, end: str, seconds: float, prefill_seconds: float) -> Footer:
        return Footer(
            end, self.tokens, self._iterations, self._drafted, self._accepted, seconds, prefill_seconds,
            self._pieces.tail, self._session.setup,
        )

    def _target_probabilities(
        self, ids: list[int], accepted: int, token: int | None, probabilities: Tensor | None
    ) -> tuple[list[float | None], float | None]:
        """What the target gave to each drafted token, and to its own. probabilities: (k+1, V)."""
        if not self._detail.target_probability:
            return [None] * len(ids), None
        # One row a drafted token; the last row is the target's own behind a full acceptance.
        columns = [*ids, token if token is not None else 0]
        if probabilities.device.type == "cpu":  # in its own memory, where a handful of numbers is read at once
            found = probabilities.numpy()[range(len(columns)), columns].tolist()
        else:
            found = probabilities.gather(1, torch.tensor(columns, device=probabilities.device)[:, None])[:, 0].tolist()
        values = [min(value, 1.0) for value in found]
        if token is None:
            return values[:-1], None
        own = values[-1] if accepted == len(ids) else min(float(probabilities[accepted, token]), 1.0)
        return values[:-1], own

    def _target_alternatives(self, row: Tensor) -> tuple[Alternative, ...]:
        values, ids = row.topk(min(self._detail.alternatives, row.shape[-1]))
        return self._alternatives(zip(ids.tolist(), values.tolist(), strict=True))

    def _alternatives(self, pairs) -> tuple[Alternative, ...]:
        return tuple(Alternative(token, self._name(token), min(p, 1.0)) for token, p in pairs)

    def _name(self, token: int) -> str:
        """A token's text on its own."""
        if token not in self._names:
            self._names[token] = self._tokenizer.decode([token])
        return self._names[token]
