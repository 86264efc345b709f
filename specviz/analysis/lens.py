"""The layer lens: what would every layer say at every position, if the model stopped there?

Each layer's hidden states go through the model's own final norm and head, as an exit there would (the logit lens;
LayerSkip's early exit drafts with exactly this). Where the answer stops changing before the last layer, the layers
above it were not needed, and an early exit there would be accepted: the picture behind self-speculative decoding.

A table is data: it saves to a file of plain JSON and loads without torch.

Memory: the text is read in chunks of C positions, and behind each layer the head makes logits (C, V) that are reduced
to an id and a probability at once. ``readers.chunk_rows`` chooses C so that neither they nor the attention scores hold
more than 2^23 numbers (32 MiB as float32); what grows with the text is the cache and 8 bytes a layer and position.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from specviz.errors import UsageError

if TYPE_CHECKING:
    from specviz.models.loading import LoadedModel

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class LensTable:
    """What L layers say behind each of P positions. Layers count from 1: layer E is an exit after E layers.

    Column p is what would be written behind the p-th token of the text, so it stands for position p + 1.
    """

    model: str
    ids: tuple[int, ...]  # (P,) the text
    pieces: tuple[str, ...]  # (P,) text that became complete with each of its tokens
    tokens: np.ndarray  # (L, P) int32: most probable token of each exit
    probabilities: np.ndarray  # (L, P) float32: what the exit gives to it, 0..1
    texts: Mapping[int, str] = field(default_factory=dict)  # every id in ``tokens`` -> its text by itself
    prompt: int = 0  # how many of the positions are prompt; the others were written by the model

    def __post_init__(self):
        if self.tokens.ndim != 2 or self.tokens.shape != self.probabilities.shape:
            raise ValueError(f"lens: tokens {self.tokens.shape} and probabilities {self.probabilities.shape} differ")
        if not len(self.ids) == len(self.pieces) == self.tokens.shape[1]:
            raise ValueError(f"lens: {len(self.ids)} ids, {len(self.pieces)} pieces, {self.tokens.shape[1]} columns")
        if not self.layers or not len(self.ids):
            raise ValueError("lens: at least one layer and one position are needed")

    @property
    def layers(self) -> int:
        return self.tokens.shape[0]

    @property
    def equal(self) -> np.ndarray:
        """(L, P) bool: does this exit give the token that the whole model gives?"""
        return self.tokens == self.tokens[-1]

    @property
    def agreement(self) -> np.ndarray:
        """(L,) share of positions where each exit gives the final token: how often it would be accepted."""
        return self.equal.mean(axis=1)

    @property
    def settled(self) -> np.ndarray:
        """(P,) int: the first layer, from 1, behind which the answer no longer changes."""
        changes = ~self.equal[::-1]
        last = np.where(changes.any(axis=0), self.layers - changes.argmax(axis=0), 0)  # last layer that differs
        return last + 1

    def text(self, layer: int, position: int) -> str:
        """Text of what layer ``layer`` (from 1) says behind a position."""
        return self.texts.get(int(self.tokens[layer - 1, position]), "")

    def window(self, start: int, stop: int) -> LensTable:
        """The columns start..stop-1."""
        columns = slice(start, stop)
        used = {int(token) for token in self.tokens[:, columns].ravel()}
        return LensTable(
            self.model, self.ids[columns], self.pieces[columns], self.tokens[:, columns],
            self.probabilities[:, columns], {k: v for k, v in self.texts.items() if k in used},
            min(max(self.prompt - start, 0), len(self.ids[columns])),
        )

    def records(self) -> list[dict[str, Any]]:
        """One plain record for each layer and position."""
        equal = self.equal
        return [
            {
                "layer": layer + 1, "position": position, "after": self.pieces[position],
                "token": int(self.tokens[layer, position]), "text": self.text(layer + 1, position),
                "probability": round(float(self.probabilities[layer, position]), 6),
                "final": bool(equal[layer, position]),
            }
            for layer in range(self.layers)
            for position in range(len(self.ids))
        ]

    def as_dict(self) -> dict[str, Any]:
        """The table as plain JSON values."""
        return {
            "kind": "lens", "schema": SCHEMA, "model": self.model, "ids": list(self.ids), "pieces": list(self.pieces),
            "prompt": self.prompt, "tokens": self.tokens.tolist(),
            "probabilities": [[round(float(p), 6) for p in row] for row in self.probabilities],
            "texts": {str(token): text for token, text in self.texts.items()},
        }


def save_lens(path: str | os.PathLike[str], table: LensTable) -> None:
    """Write a table as one JSON object. Appears whole or not at all."""
    part = os.fspath(path) + ".part"
    with open(part, "w", encoding="utf-8", errors="surrogatepass") as file:
        json.dump(table.as_dict(), file, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    os.replace(part, path)


def load_lens(path: str | os.PathLike[str]) -> LensTable:
    """Read a table. UsageError, in one line, if the file is missing, damaged, newer, or something else."""
    name = os.fspath(path)
    try:
        with open(path, encoding="utf-8", errors="surrogatepass") as file:
            data = json.load(file)
        if data["kind"] != "lens":
            raise KeyError("kind")
        if data["schema"] > SCHEMA:
            raise UsageError(f"{name}: schema {data['schema']} is newer than this program's {SCHEMA}: update specviz")
        return parse_lens(data)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
    except UsageError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{name}: this is not a lens file, or it is damaged ({error})") from None


def parse_lens(data: Mapping[str, Any]) -> LensTable:
    """The table of what ``as_dict`` gives, also after JSON. ValueError, KeyError, TypeError for anything else."""
    return LensTable(
        model=str(data["model"]),
        ids=tuple(int(token) for token in data["ids"]),
        pieces=tuple(str(piece) for piece in data["pieces"]),
        tokens=np.array(data["tokens"], np.int32),
        probabilities=np.array(data["probabilities"], np.float32),
        texts={int(token): str(text) for token, text in data["texts"].items()},
        prompt=int(data["prompt"]),
    )


def lens(
    loaded: LoadedModel,
    ids: Sequence[int],
    *,
    prompt: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> LensTable:
    """Read a text with every layer. ids: (P,) token ids, P >= 1; prompt: how many of them are prompt.

    progress: called with positions read and P. UsageError for a family whose layers cannot be run apart, for an empty
    text and for one that is longer than the model's context window.
    """
    import torch

    from specviz.analysis.readers import chunk_rows, judge
    from specviz.decoding.text import TextPieces
    from specviz.models.streams import ids_tensor, open_split_stream

    if not len(ids):
        raise UsageError("the text is empty: give at least one token")
    if len(ids) > loaded.context:
        raise UsageError(f"the text has {len(ids)} tokens, {loaded.name} takes {loaded.context}: shorten it")
    stream = open_split_stream(loaded, length=len(ids))
    tokens = np.empty((stream.layers, len(ids)), np.int32)
    probabilities = np.empty((stream.layers, len(ids)), np.float32)
    rows = chunk_rows(loaded, len(ids))
    try:
        with torch.inference_mode():
            for begin in range(0, len(ids), rows):
                part = slice(begin, min(begin + rows, len(ids)))
                hidden = stream.embed(ids_tensor(ids[part], stream.device))
                for layer in range(stream.layers):
                    hidden = stream.run(hidden, layer, layer + 1)
                    picked, probability, _ = judge(stream.head(hidden))
                    tokens[layer, part], probabilities[layer, part] = picked.cpu(), probability.cpu()
                if progress is not None:
                    progress(part.stop, len(ids))
    finally:
        stream.close()
    pieces = TextPieces(loaded.tokenizer)
    return LensTable(
        model=loaded.name,
        ids=tuple(int(token) for token in ids),
        pieces=tuple(pieces.push(int(token)) for token in ids),
        tokens=tokens,
        probabilities=probabilities,
        texts={int(token): loaded.tokenizer.decode([int(token)]) for token in np.unique(tokens)},
        prompt=prompt,
    )
