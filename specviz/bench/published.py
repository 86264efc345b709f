"""What the sources published, with their hardware: always shown beside our own measurements, never mixed with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of a source's table. pair, method, exit_layer: how to run it here, where the zoo has the models."""

    cells: tuple[Any, ...]
    pair: str | None = None
    method: str = "dynamic"
    exit_layer: int | None = None


@dataclass(frozen=True)
class Source:
    """One table of a source. columns: short names of what the cells are; note: key of a remark, or empty."""

    name: str
    title: str
    source: str
    hardware: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""


_SUM, _OPEN, _CODE = "summarisation", "open-ended", "code (python)"

DYNAMIC = Source(
    "dynamic",
    "Dynamic speculative decoding",
    "Transformers 4.45, Intel Labs and Hugging Face",
    "one RTX 4090, greedy",
    ("target", "draft", "task", "heuristic", "dynamic"),
    (
        Row(("facebook/opt-6.7b", "facebook/opt-125m", _SUM, 1.82, 2.71), "opt"),
        Row(("facebook/opt-6.7b", "facebook/opt-125m", _OPEN, 1.23, 1.59), "opt"),
        Row(("Salesforce/codegen-6B-mono", "Salesforce/codegen-350M-mono", _CODE, 0.89, 1.09), "codegen"),
        Row(("google/flan-t5-xl", "google/flan-t5-small", _SUM, 1.18, 1.31), "flan-t5"),
        Row(("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B", _SUM, 1.00, 1.52), "llama"),
        Row(("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B", _OPEN, 1.00, 1.18), "llama"),
        Row(("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B", _CODE, 1.09, 1.15), "llama"),
    ),
    "published.dynamic.note",
)

LAYERSKIP = Source(
    "layerskip",
    "LayerSkip: self-speculative decoding",
    "arXiv 2404.16710 and the Hugging Face blog",
    "one A100 80 GB (70B: eight), summarisation",
    ("model", "exit_layer", "self_ms", "plain_ms", "speedup", "two_model"),
    (
        Row(("layerskip-llama2-7B", 4, 19.91, 25.83, 1.30, "TinyLlama 1.22"), "layerskip-llama2-7b", "early-exit", 4),
        Row(("layerskip-llama2-13B", 4, 33.11, 32.95, 0.995, None), "layerskip-llama2-13b", "early-exit", 4),
        Row(("layerskip-llama2-13B", 8, 19.22, 33.55, 1.75, None), "layerskip-llama2-13b", "early-exit", 8),
        Row(("layerskip-llama3-8B", 4, 15.75, 28.87, 1.83, "Llama-3.2-1B 1.53"), "layerskip-llama3-8b", "early-exit", 4),
        Row(("layerskip-llama3.2-1B", 4, 9.96, 17.9, 1.80, None), "layerskip-llama3.2-1b", "early-exit", 4),
        Row(("layerskip-llama2-70B", 10, 54.96, 113.2, 2.06, "TinyLlama 2.84"), "layerskip-llama2-70b", "early-exit", 10),
    ),
    "published.layerskip.note",
)

SWEEP = Source(
    "sweep",
    "Exit layer sweep: Llama-3.2-3B, LayerSkip fine-tuned on TOPv2",
    "huggingface/trl issue 3111",
    "not stated; ms for the same output",
    ("exit_layer", "milliseconds"),
    tuple(
        Row((layer, ms))
        for layer, ms in (
            ("none", 522), (1, 569), (2, 353), (3, 188), (4, 171), (5, 187), (6, 203), (8, 235), (12, 292), (15, 339),
        )
    ),
    "published.sweep.note",
)  # fmt: skip

SOURCES = (DYNAMIC, LAYERSKIP, SWEEP)
