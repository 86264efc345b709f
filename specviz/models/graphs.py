"""The lean stream on fixed shapes, so that a GPU can replay it as one captured graph instead of launching it in pieces.

A step of a small model is hundreds of kernels that are each done before the next is launched; a captured graph launches
them all at once. Capture needs every shape and address fixed: the cache is never moved, attention runs over a fixed
width of it under a mask made from the positions, and positions are data. Captured are the shapes that decoding repeats:
one draft step, a verification of n tokens, the early layers, the remainder, the head. Longer blocks run as they come, on
the same cache.

Graphs and their cache belong to a model and outlive a run, since capturing takes longer than many tokens do. Whether
they are faster is measured once; where they aren't, or where capture fails, the plain lean stream runs.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

import torch
from torch import Tensor, nn

from specviz.models.lean import LeanStream
from specviz.models.lean_weights import LeanWeights
from specviz.models.loading import LoadedModel, Progress

Function = Callable[..., Tensor]

MOST_TOKENS = 33  # longest block that is captured: a lookahead of 32
_WIDTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_FEWEST_ROOM = 1024
_TRIES = 10
_GAIN = 0.95


class Direct:
    """Calls a function as it is: the fixed shapes without capture, as a CPU runs them in the tests."""

    name = "static"

    def __call__(self, key: tuple, function: Function, *inputs: Tensor) -> Tensor:
        return function(*inputs)


class Captured:
    """Captures a function the first time that a key is called for, and replays it from then on.

    What a function reads beside its inputs has to stay where it is; what it returns is copied out, because the next
    replay writes to the same place.
    """

    name = "graphs"

    def __init__(self, device: torch.device):
        self._device = device
        self._graphs: dict[tuple, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Tensor]] = {}
        self._pool = None

    def __call__(self, key: tuple, function: Function, *inputs: Tensor) -> Tensor:
        if key not in self._graphs:
            self._graphs[key] = self._capture(function, inputs)
        graph, places, result = self._graphs[key]
        for place, given in zip(places, inputs, strict=True):
            place.copy_(given)
        graph.replay()
        return result.clone()

    def _capture(self, function: Function, inputs: tuple[Tensor, ...]):
        places = tuple(given.clone() for given in inputs)
        aside = torch.cuda.Stream(self._device)
        aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(aside):
            for _ in range(2):  # libraries allocate their workspaces in the first call
                function(*places)
        torch.cuda.current_stream(self._device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            result = function(*places)
        self._pool = self._pool or graph.pool()
        return graph, places, result


class StaticStream(LeanStream):
    """A lean stream whose repeated shapes go through ``runner``. It has a fixed room, and none beyond it.

    Running a block again at the same positions, as warming up does, writes the same keys and values again.
    """

    def __init__(self, loaded: LoadedModel, weights: LeanWeights, length: int, runner: Direct | Captured):
        super().__init__(loaded, weights, length)
        self._runner = runner
        self._scripted = None  # its shapes go through the runner instead
        self.kind = f"{weights.kind}+{runner.name}"
        with torch.inference_mode(False), torch.no_grad():
            # Places that were not written yet are masked, and masked must not be "not a number".
            self._keys.zero_()
            self._values.zero_()
            self._columns = torch.arange(self._room, device=self.device)
        self._writing: Tensor | None = None  # positions that are written, while the layers run on fixed shapes

    def reset(self) -> None:
        """Forget everything, for the next run on the same graphs."""
        self._lengths = [0] * self.layers

    def close(self) -> None:
        """Leaves cache and graphs to the model's next run."""
        self.reset()
        _BUSY.discard(self)

    def forward(self, ids: Tensor, keep: int | None = None) -> Tensor:
        """Append token ids (n,) in all layers; logits of the last ``keep`` (default: all): (keep, V)."""
        keep = len(ids) if keep is None else keep
        if not 0 < len(ids) <= MOST_TOKENS or not keep:
            return super().forward(ids, keep)
        start, width = self._begin(len(ids), 0, self.layers)

        def whole(tokens: Tensor, positions: Tensor) -> Tensor:
            states = self._run_static(self.embed(tokens)[0], positions, 0, self.layers, width)
            return self._head_of(states[-keep:])

        positions = self._columns[start : start + len(ids)]
        logits = self._runner(("whole", len(ids), keep, width), whole, ids, positions)
        self._lengths = [start + len(ids)] * self.layers
        return logits

    def run(self, hidden: Tensor, first: int, last: int) -> Tensor:
        """Run layers first..last-1 over hidden states (1, n, d), appending n positions to each of them."""
        count = hidden.shape[1]
        if count > MOST_TOKENS:
            return super().run(hidden, first, last)
        start, width = self._begin(count, first, last)

        def part(states: Tensor, positions: Tensor) -> Tensor:
            return self._run_static(states, positions, first, last, width)

        positions = self._columns[start : start + count]
        states = self._runner(("part", first, last, count, width), part, hidden[0], positions)
        self._lengths[first:last] = [start + count] * (last - first)
        return states[None]

    def head(self, hidden: Tensor) -> Tensor:
        """Final norm and LM head: hidden states (1, n, d) -> logits (n, V)."""
        if hidden.shape[1] > MOST_TOKENS:
            return super().head(hidden)
        return self._runner(("head", hidden.shape[1]), self._head_of, hidden[0])

    def _head_of(self, states: Tensor) -> Tensor:
        return super().head(states[None])

    def _begin(self, count: int, first: int, last: int) -> tuple[int, int]:
        """Where the block begins, and the width of the cache that it attends to."""
        start = self._common_length(first, last)
        if start + count > self._room:
            raise ValueError(f"{start + count} positions: this stream has room for {self._room}")
        return start, min(self._room, next(width for width in _WIDTHS if width >= start + count))

    def _run_static(self, states: Tensor, positions: Tensor, first: int, last: int, width: int) -> Tensor:
        """As ``run`` does it, but nothing depends on where the sequence stands except through ``positions`` (n,)."""
        turns = self._cos[positions], self._sin[positions]
        masks = {window: self._mask_at(positions, window, width) for window in self._windows(first, last)}
        self._writing = positions
        try:
            for index, layer in enumerate(self._weights.layers[first:last], first):
                keys, values = self._keys[index], self._values[index]
                states = self._layer(
                    layer, self._norms[index], states, turns, keys, values, keys[:, :, :width], values[:, :width],
                    masks[layer.window],
                )
        finally:
            self._writing = None
        return states

    def _mask_at(self, positions: Tensor, window: int | None, width: int) -> Tensor:
        columns, rows = self._columns[None, :width], positions[:, None]
        seen = columns <= rows
        if window is not None:
            seen &= columns > rows - window
        mask = torch.zeros(seen.shape, device=self.device, dtype=self._dtype).masked_fill_(~seen, -torch.inf)
        return mask if len(positions) == 1 else self._for_each_head(mask)

    def _write(self, keys_place: Tensor, values_place: Tensor, keys: Tensor, values: Tensor) -> None:
        if self._writing is None:
            super()._write(keys_place, values_place, keys, values)
        else:
            keys_place.index_copy_(2, self._writing, keys)
            values_place.index_copy_(1, self._writing, values)

    def _allocate(self, room: int) -> None:
        if self._keys is not None:
            raise ValueError(f"{room} positions: this stream has room for {self._room}")
        super()._allocate(room)


# One stream a model, kept with its graphs between runs; None where graphs were tried and are not to be used.
_KEPT: weakref.WeakKeyDictionary[nn.Module, StaticStream | None] = weakref.WeakKeyDictionary()
_BUSY: weakref.WeakSet[StaticStream] = weakref.WeakSet()


def open_graph_stream(loaded: LoadedModel, weights: LeanWeights, length: int = 0) -> StaticStream | None:
    """The model's captured stream, or None where it is in use, not faster, or not possible."""
    kept = _KEPT.get(loaded.model)
    if loaded.model in _KEPT and kept is None:
        return None
    if kept is not None and (kept._weights is not weights or kept._room < length):
        _KEPT.pop(loaded.model)
        kept = None
    if kept is None:
        kept = _KEPT[loaded.model] = _try(loaded, weights, max(length, min(_FEWEST_ROOM, loaded.context)))
    if kept is None or kept in _BUSY:
        return None
    _BUSY.add(kept)
    kept.reset()
    return kept


def prepare(loaded: LoadedModel, blocks: int, exit_layer: int | None = None, progress: Progress | None = None) -> None:
    """Capture the graphs of blocks of 1..``blocks`` tokens ahead of the first run; does nothing without a GPU."""
    from specviz.models.lean_weights import lean_weights

    weights = lean_weights(loaded) if loaded.device.type == "cuda" else None
    stream = open_graph_stream(loaded, weights) if weights is not None else None
    if stream is None:
        return
    tell = progress or (lambda stage, done, total, unit: None)
    try:
        for count in range(1, blocks + 1):
            tell("capturing graphs", count, blocks, "blocks")
            ids = torch.zeros(count, dtype=torch.long, device=loaded.device)
            if exit_layer is None:
                stream.forward(ids)
            else:
                early = stream.run(stream.embed(ids), 0, exit_layer)
                stream.head(stream.run(early, exit_layer, stream.layers))
            stream.reset()
    finally:
        stream.close()


def _try(loaded: LoadedModel, weights: LeanWeights, room: int) -> StaticStream | None:
    """A captured stream, if capture works, gives the same logits, and is faster than the plain one."""
    try:
        captured = StaticStream(loaded, weights, room, Captured(loaded.device))
        plain = LeanStream(loaded, weights, room)
        ids = torch.arange(8, device=loaded.device)
        with torch.inference_mode():
            expected = plain.forward(ids)
            found = captured.forward(ids)
            tolerance = 0.05 if loaded.dtype in (torch.bfloat16, torch.float16) else 1e-3
            if not (found - expected).abs().max() <= tolerance * expected.abs().max():
                return None
            slow, fast = _step_time(plain, ids[:1]), _step_time(captured, ids[:1])
        captured.reset()
        return captured if fast < _GAIN * slow else None
    except RuntimeError:  # out of memory, or an operation that cannot be captured
        return None


def _step_time(stream: LeanStream, ids: Tensor) -> float:
    start = stream.length
    best = float("inf")
    for _ in range(_TRIES):
        torch.cuda.synchronize()
        began = time.perf_counter()
        stream.forward(ids)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
        stream.rewind(start)
    return best
