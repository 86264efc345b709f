"""Measurements that are no race between engines: cost of a block, growth with the context, memory, the log's own cost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from specviz.decoding import FULL_DETAIL, Detail, MethodConfig, build, decode
from specviz.models.loading import LoadedModel
from specviz.models.streams import ids_tensor, open_stream

NO_DETAIL = Detail(target_probability=False)


@torch.inference_mode()
def block_cost(target: LoadedModel, context: int = 128, sizes: Sequence[int] = (1, 2, 4, 8, 16), repetitions: int = 9):
    """Milliseconds of one forward over n new tokens, medians, interleaved: {n: ms}."""
    prompt = _text(target, context)
    stream = open_stream(target, length=context + max(sizes))
    try:
        stream.forward(ids_tensor(prompt, stream.device), keep=0)
        held = stream.length

        def forward(size: int) -> None:
            stream.forward(ids_tensor(prompt[:size], stream.device), keep=size).argmax(dim=-1).tolist()
            stream.rewind(held)

        parts = {size: (lambda size=size: forward(size)) for size in sizes}
        return {size: 1000 * float(np.median(times)) for size, times in _alternate(parts, repetitions).items()}
    finally:
        stream.close()


def growth(
    config: MethodConfig, target: LoadedModel, draft: LoadedModel | None, contexts: Sequence[int], tokens: int = 32,
    repetitions: int = 5,
) -> dict[int, float]:
    """Milliseconds a token behind prompts of these lengths (prefill apart), medians: {context: ms}."""
    method = build(config, target, draft)
    room = min(model.context for model in (target, draft) if model is not None)
    contexts = [context for context in contexts if context + tokens < room]

    def once(context: int) -> float:
        *_, footer = decode(_text(target, context), method, tokens)
        return footer.seconds / max(footer.tokens, 1)

    found: dict[int, list[float]] = {context: [] for context in contexts}
    for turn in range(repetitions + 1):
        for context in contexts:
            seconds = once(context)
            if turn:  # the first turn warms up
                found[context].append(seconds)
    return {context: 1000 * float(np.median(times)) for context, times in found.items()}


def log_cost(
    config: MethodConfig, target: LoadedModel, draft: LoadedModel | None, prompt: Sequence[int], limit: int,
    repetitions: int = 15,
) -> dict[str, float]:
    """Share of the time that the log takes, default and with everything recorded, against recording the least: the
    median of runs taken in turn."""
    method = build(config, target, draft)
    details = {"least": NO_DETAIL, "default": Detail(), "everything": FULL_DETAIL}

    def once(detail: Detail) -> None:
        for _ in decode(prompt, method, limit, detail=detail):
            pass

    times = _alternate({name: (lambda detail=detail: once(detail)) for name, detail in details.items()}, repetitions)
    least = np.array(times["least"])
    return {name: float(np.median(np.array(times[name]) / least)) - 1 for name in ("default", "everything")}


def peak_memory(target: str, draft: str | None, configs: Sequence[MethodConfig], tokens: int = 64) -> dict[str, int]:
    """Bytes that a fresh process holds at most while decoding, beyond what it held before the models were loaded."""
    found = {}
    for config in configs:
        request = {"target": target, "draft": draft if config.spec.drafter == "assistant" else None,
                   "method": config.as_dict(), "tokens": tokens}
        command = [sys.executable, "-c", "from specviz.bench.studies import _measure_memory; _measure_memory()"]
        done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=True)
        found[config.name] = int(done.stdout.splitlines()[-1])
    return found


def _measure_memory() -> None:
    from specviz.models.loading import load_pair

    request = json.loads(sys.stdin.read())
    # Everything that a first run imports and allocates, whatever the model.
    import transformers.generation  # noqa: F401

    torch.mm(torch.ones(64, 64), torch.ones(64, 64))
    before = _resident()
    target, draft = load_pair(request["target"], request["draft"])
    method = build(MethodConfig(**request["method"]), target, draft)
    for _ in decode(_text(target, 64), method, request["tokens"]):
        pass
    print(_peak() - before)


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def _peak() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def _alternate(parts: dict, repetitions: int) -> dict:
    """Seconds of each part, run in turn, after one round that isn't counted."""
    times: dict = {name: [] for name in parts}
    for turn in range(repetitions + 1):
        for name, part in parts.items():
            seconds = _seconds(part)
            if turn:
                times[name].append(seconds)
    return times


def _seconds(part: Callable[[], object]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    part()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _text(target: LoadedModel, count: int) -> list[int]:
    """So many ids of ordinary text, no end of sequence among them."""
    words = "The river ran past the mill, and the miller counted his sacks of flour while the children played. "
    ids = [token for token in target.tokenizer(words * (count // 8 + 2)).input_ids if token not in target.eos_ids]
    while len(ids) < count:
        ids += ids
    return ids[:count]
