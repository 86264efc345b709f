"""What is measured: one way to continue a prompt, ours or another library's, under a name.

Peers get models of their own: the lean layers rearrange a model's weights, and nobody shall be slower for that.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

import torch

from specviz.decoding import Detail, Method, MethodConfig, build, decode
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel

# (prompt ids, most new tokens) -> new token ids
Continue = Callable[[Sequence[int], int], list[int]]
Counts = Callable[[], "dict | None"]  # what the last run drafted and accepted, where it is known


@dataclass(frozen=True)
class Engine:
    """family: "ours", "transformers", or a package's name. method: a name of the registry, so that engines of one
    method are compared with each other. counts: drafted, accepted and iterations of the last run."""

    name: str
    family: str
    method: str
    run: Continue
    counts: Counts = lambda: None


def ours(config: MethodConfig, target: LoadedModel, draft: LoadedModel | None, detail: Detail | None = None) -> Engine:
    """One of our methods, as the command line and the page run it."""
    method: Method = build(config, target, draft)
    last: dict = {}

    def run(prompt: Sequence[int], limit: int) -> list[int]:
        ids: list[int] = []
        for record in decode(prompt, method, limit, detail=detail or Detail()):
            if record.kind == "iteration":
                ids += record.ids
            elif record.kind == "footer":
                last.update(drafted=record.drafted, accepted=record.accepted, iterations=record.iterations)
            else:
                last["stream"] = record.target["stream"]
        return ids

    return Engine(f"specviz {label(method.config)}", "ours", config.name, run, lambda: dict(last))


def transformers_engine(config: MethodConfig, target: LoadedModel, draft: LoadedModel | None) -> Engine | None:
    """The same method by transformers' generate(), with the same settings; None where it has no such method."""
    options: dict = {}
    filled = build(config, target, draft).config
    helper = draft
    if config.spec.drafter == "early-exit":
        options["assistant_early_exit"] = filled.exit_layer
        helper = target  # it reads its settings from the model's own generation config then
    elif config.spec.drafter == "assistant":
        options["assistant_model"] = draft.model
    elif config.spec.drafter == "prompt-lookup":
        options |= {"prompt_lookup_num_tokens": filled.lookahead, "max_matching_ngram_size": filled.ngram}
        helper = None
    else:
        helper = None
    if config.spec.policy == "oracle":
        return None
    schedule = "heuristic" if config.spec.policy == "heuristic" else "constant"

    @torch.inference_mode()
    def run(prompt: Sequence[int], limit: int) -> list[int]:
        ids = torch.tensor([list(prompt)], device=target.device)
        with _settings(helper, filled, schedule), _without_sklearn():
            out = target.model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=limit,
                pad_token_id=target.model.generation_config.pad_token_id or 0, **options,
            )
        start = 1 if target.is_encoder_decoder else len(prompt)
        return out[0, start:].tolist()

    name = "generate()" if config.spec.drafter == "none" else f"transformers {label(filled)}"
    return Engine(f"transformers {name}".replace("transformers transformers", "transformers"), "transformers",
                  config.name, run)


@contextmanager
def _settings(helper: LoadedModel | None, config: MethodConfig, schedule: str):
    """transformers reads a draft's settings from its generation config, and writes learnt ones back into it."""
    if helper is None:
        yield
        return
    wanted = {
        "num_assistant_tokens": config.lookahead, "num_assistant_tokens_schedule": schedule,
        "assistant_confidence_threshold": config.threshold or 0.0,
    }
    generation = helper.model.generation_config
    before = {key: getattr(generation, key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            setattr(generation, key, value)
        yield
    finally:
        for key, value in before.items():
            setattr(generation, key, value)


@contextmanager
def _without_sklearn():
    """Where scikit-learn is installed transformers adapts the threshold while it runs; the settings would differ."""
    place = "transformers.generation.candidate_generator.is_sklearn_available"
    with mock.patch(place, return_value=False):
        yield


def label(config: MethodConfig) -> str:
    """A short name with the parameters: 'early-exit E=4 k=4'."""
    signs = {"exit_layer": "E", "lookahead": "k", "threshold": "t", "ngram": "n"}
    parts = [f"{sign}={getattr(config, key):g}" for key, sign in signs.items() if getattr(config, key) is not None]
    return " ".join([config.name, *parts])


def copy_for_peers(loaded: LoadedModel) -> LoadedModel:
    """A model of one's own on the same device, its weights laid out as they were loaded."""
    if any("_hf_hook" in module.__dict__ for module in loaded.model.modules()):
        raise UsageError(f"{loaded.name} is spread over devices: peers cannot be given a copy of it")
    model = copy.deepcopy(loaded.model)
    for weight in model.parameters():
        weight.data = weight.data.contiguous()
    return replace(loaded, model=model)
