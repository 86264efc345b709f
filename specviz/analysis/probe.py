"""What a drafter would do at every position of one finished greedy output: data that answers for every policy.

Under greedy decoding the drafter's context is the output itself for as long as its drafts agree with the output. So one
pass over the finished sequence gives the token that it would draft at each position, with its confidence; and what it
drafts *after* a wrong token depends only on where that wrong token is, so one continuation per wrong position completes
the picture. ``specviz.analysis.simulate`` turns a probe and a policy into the iterations that a real run would log.

A probe is data: it saves to one compressed file, and loads without torch. Measuring one is ``measure.py``.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from specviz.errors import UsageError

SCHEMA = 1
KINDS = ("assistant", "early-exit")

MOST_BYTES = 2**28  # of an unpacked file; a model of 80 layers, 1,000 tokens and lookahead 32 needs half of that

_ARRAYS = {
    "draft_ids": np.int32, "confidence": np.float32, "margin": np.float32,
    "target_probability": np.float32, "target_margin": np.float32,
    "wrong_index": np.int32, "wrong_ids": np.int32, "wrong_confidence": np.float32, "wrong_margin": np.float32,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Probe:
    """One output of N tokens, seen by R drafters: the rows.

    Positions count from the first output token: position t is output token t, 0 <= t < N. A row is an exit layer of the
    target (``kind="early-exit"``) or the draft model (``kind="assistant"``, one row, ``rows == (0,)``).

    Shapes: R rows, N positions, W wrong positions over all rows, J tokens of each continuation, J >= ``max_lookahead - 1``:
    any policy that looks ahead up to ``max_lookahead`` tokens can be asked for (continuations are longer where the
    heuristic schedule may have grown beyond it). Ids are -1 where nothing was drafted: behind an end-of-sequence token,
    the limit, the draft model's context window, or the continuation's measured end.
    """

    kind: str
    target: str  # names, as in the log
    draft: str | None
    prompt: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]  # (N,) the target's own greedy tokens
    pieces: tuple[str, ...]  # (N,) text that became complete with each output token
    tail: str  # text of an unfinished character at the end
    eos_ids: tuple[int, ...]
    limit: int  # most new tokens of a run: the asked limit, or less where the context window is nearer
    end: str  # why the output ended: "eos", "limit", "context"
    offset: int  # position of output token 0 in the log's count (the prompt's length; decoder's start for T5)
    layers: int  # of the target
    rows: tuple[int, ...]  # (R,) exit layers, or (0,) for a draft model
    max_lookahead: int
    draft_context: int  # longest sequence that the drafter reads; behind it runs go on without drafts
    draft_ids: np.ndarray  # (R, N) int32: token drafted at a position, given the true output before it
    confidence: np.ndarray  # (R, N) float32: probability that the drafter gave to it
    margin: np.ndarray  # (R, N) float32: its logit minus that of the second best: small means a near tie
    target_probability: np.ndarray  # (N,) float32: what the target gave to its own token
    target_margin: np.ndarray  # (N,) float32: the target's logit of it minus the second best
    wrong_index: np.ndarray  # (R, N) int32: line of the three tables below, -1 where none is wrong
    wrong_ids: np.ndarray  # (W, J) int32: tokens drafted after the wrong one, column 0 right behind it
    wrong_confidence: np.ndarray  # (W, J) float32
    wrong_margin: np.ndarray  # (W, J) float32
    texts: Mapping[int, str] = field(default_factory=dict)  # every drafted id -> its text by itself
    info: Mapping[str, object] = field(default_factory=dict)  # free facts: dtype, device, seconds it took

    def __post_init__(self):
        r, n = len(self.rows), len(self.output_ids)
        w, j = self.wrong_ids.shape if self.wrong_ids.ndim == 2 else (-1, -1)
        wanted = {
            "draft_ids": (r, n), "confidence": (r, n), "margin": (r, n), "wrong_index": (r, n),
            "target_probability": (n,), "target_margin": (n,),
            "wrong_ids": (w, j), "wrong_confidence": (w, j), "wrong_margin": (w, j),
        }  # fmt: skip
        for name, shape in wanted.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"probe: {name} has shape {getattr(self, name).shape}, {shape} is needed")
        if len(self.pieces) != n:
            raise ValueError(f"probe: {len(self.pieces)} pieces for {n} output tokens")
        if self.kind not in KINDS:
            raise ValueError(f"probe: kind {self.kind!r}, one of {', '.join(KINDS)} is needed")
        if n > self.limit:
            raise ValueError(f"probe: {n} output tokens, but the limit is {self.limit}")
        if j < self.max_lookahead - 1 and w > 0:
            raise ValueError(f"probe: continuations of {j} tokens are too short for lookahead {self.max_lookahead}")
        if n and (self.wrong_index.max(initial=-1) >= w or np.any((self.wrong_index >= 0) != self.wrong)):
            raise ValueError("probe: wrong_index must name a continuation for every wrong position and no other")

    @property
    def length(self) -> int:
        """N, the number of output tokens."""
        return len(self.output_ids)

    @cached_property
    def match(self) -> np.ndarray:
        """(R, N) bool: would the drafter be right at this position?"""
        return self.draft_ids == np.asarray(self.output_ids, np.int32)[None, :]

    @property
    def wrong(self) -> np.ndarray:
        """(R, N) bool: would the drafter draft a wrong token here?"""
        return ~self.match & (self.draft_ids >= 0)

    @cached_property
    def run(self) -> np.ndarray:
        """(R, N + 1) int: oracle lookahead, the number of right drafts in a row from a position on.

        Column N, behind the end, is 0. An end-of-sequence token counts: drafted and right, it is accepted.
        """
        out = np.zeros((len(self.rows), self.length + 1), np.int64)
        for t in range(self.length - 1, -1, -1):
            out[:, t] = np.where(self.match[:, t], out[:, t + 1] + 1, 0)
        return out

    def row_of(self, exit_layer: int | None) -> int:
        """Index of an exit layer's row; 0 for a draft model. UsageError for a layer that was not probed."""
        if self.kind == "assistant":
            return 0
        if exit_layer not in self.rows:
            raise UsageError(f"exit layer {exit_layer} was not probed; choose one of {_ranges(self.rows)}")
        return self.rows.index(exit_layer)

    def drafted(self, row: int, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and confidences of the draft of `count` tokens that begins at a position: (count,) int32, (count,) float32.

        As the drafter would have made it: right tokens, the first wrong one, and its continuation. Ids are -1 from
        where no draft goes on (behind an end-of-sequence token or the limit).
        """
        right = min(count, int(self.run[row, start]))
        ids = list(self.draft_ids[row, start : start + right])
        confidence = list(self.confidence[row, start : start + right])
        wrong = start + right
        if right < count and wrong < self.length:
            line, rest = self.wrong_index[row, wrong], count - right - 1
            ids += [self.draft_ids[row, wrong], *self.wrong_ids[line, :rest]]
            confidence += [self.confidence[row, wrong], *self.wrong_confidence[line, :rest]]
        missing = count - len(ids)
        return (
            np.array(ids + [-1] * missing, np.int32),
            np.array(confidence + [0.0] * missing, np.float32),
        )

    def text_of(self, token: int) -> str:
        """Text of a drafted token by itself (the pieces of the output are in ``pieces``)."""
        return self.texts.get(int(token), "")


def probe_bytes(probe: Probe) -> bytes:
    """A probe as the content of a file (.npz: a JSON header and plain arrays); ``parse_probe`` reads it."""
    header = {f.name: getattr(probe, f.name) for f in fields(Probe) if f.name not in _ARRAYS}
    header["texts"] = {str(key): value for key, value in probe.texts.items()}
    header["info"] = dict(probe.info)
    text = json.dumps({"schema": SCHEMA, **header}, ensure_ascii=False, allow_nan=False)
    arrays = {name: getattr(probe, name) for name in _ARRAYS}
    # surrogatepass: a tokenizer may hold half characters, and a probe must not fail on them.
    raw = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    out = io.BytesIO()
    np.savez_compressed(out, header=raw, **arrays)
    return out.getvalue()


def save_probe(path: str | os.PathLike[str], probe: Probe) -> None:
    """Write a probe to one compressed file. Appears whole or not at all."""
    part = os.fspath(path) + ".part"
    with open(part, "wb") as file:
        file.write(probe_bytes(probe))
    os.replace(part, path)


def load_probe(path: str | os.PathLike[str]) -> Probe:
    """Read a probe. UsageError, in one line, if the file is missing, damaged, newer, or not a probe."""
    try:
        with open(path, "rb") as file:
            return parse_probe(file.read())
    except OSError as error:
        raise UsageError(f"{os.fspath(path)}: {error.strerror or error}") from None
    except UsageError as error:
        raise UsageError(f"{os.fspath(path)}: {error}") from None


def parse_probe(data: bytes) -> Probe:
    """The probe of a file's bytes (see load_probe). Never unpickles."""
    try:
        size = sum(part.file_size for part in zipfile.ZipFile(io.BytesIO(data)).infolist())
        if size > MOST_BYTES:  # a few kilobytes can unpack to anything
            raise UsageError(f"unpacks to {size:,} bytes; a probe has at most {MOST_BYTES:,}")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes().decode("utf-8", "surrogatepass"))
            schema = header.pop("schema")
            if schema > SCHEMA:
                raise UsageError(f"schema {schema} is newer than this program's {SCHEMA}: update specviz to open it")
            arrays = {name: file[name].astype(kind, casting="same_kind") for name, kind in _ARRAYS.items()}
        known = {f.name for f in fields(Probe)}
        header = {key: value for key, value in header.items() if key in known}
        for key in ("prompt_ids", "output_ids", "eos_ids", "rows"):
            header[key] = _ids(header[key])
        for key in ("limit", "offset", "layers", "max_lookahead", "draft_context"):
            header[key] = int(header[key])
        header["tail"] = str(header["tail"])
        header["pieces"] = tuple(str(piece) for piece in header["pieces"])
        header["texts"] = {int(key): str(value) for key, value in header["texts"].items()}
        return Probe(**header, **arrays)
    except UsageError:
        raise
    except Exception as error:  # zip, zlib, numpy and JSON each have their own words for a damaged file
        reason = " ".join(str(error).split())
        raise UsageError(f"this is not a probe file, or it is damaged ({reason})") from None


def _ids(values) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _ranges(values) -> str:
    """1, 2, 3, 5 -> "1..3, 5"."""
    parts: list[list[int]] = []
    for value in values:
        if parts and value == parts[-1][1] + 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    return ", ".join(f"{a}" if a == b else f"{a}..{b}" for a, b in parts)
