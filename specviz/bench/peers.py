"""The PyPI packages economize and flashspec, where they are installed (tests/requirements-peers.txt).

They are the strongest engines of this kind for transformers models. The application never needs them.
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
from collections.abc import Sequence

import torch

from specviz.bench.engines import Engine, label
from specviz.decoding import MethodConfig, build
from specviz.models.loading import LoadedModel

PACKAGES = ("economize", "flashspec")


def installed() -> tuple[str, ...]:
    return tuple(name for name in PACKAGES if importlib.util.find_spec(name) is not None)


def peer_engines(config: MethodConfig, target: LoadedModel, draft: LoadedModel | None) -> list[Engine]:
    """Engines of the installed packages for one of our methods, with the settings that come nearest to ours."""
    filled = build(config, target, draft).config
    found = []
    for package, make in (("economize", _economize), ("flashspec", _flashspec)):
        if package not in installed():
            continue
        logging.getLogger(package).setLevel(logging.ERROR)
        run = make(filled, target, draft)
        if run is not None:
            found.append(Engine(f"{package} {label(filled)}", package, config.name, run))
    return found


def _economize(config: MethodConfig, target: LoadedModel, draft: LoadedModel | None):
    import economize
    from economize.techniques.draft_model import DraftModelConfig
    from economize.techniques.early_exit import EarlyExitConfig
    from economize.techniques.lookup import LookupConfig

    kind = config.spec.drafter
    if config.spec.policy != "constant":
        return None
    if kind == "early-exit":
        technique = EarlyExitConfig(exit_layer=config.exit_layer, head="shared")
    elif kind == "prompt-lookup":
        technique = LookupConfig(max_ngram=config.ngram, min_ngram=1)
    elif kind == "assistant":
        # It takes the draft model as a folder and loads it by itself.
        folder = tempfile.mkdtemp(prefix="specviz-bench-")
        draft.model.save_pretrained(folder)
        technique = DraftModelConfig(model=folder)
    else:
        return None
    model = economize.apply(target.model, technique)
    options = {"cycle_length": config.lookahead + 1}  # with the token that its verification gives
    if config.threshold:
        options["min_confidence"] = config.threshold
    decoding = economize.DecodeConfig(**options)
    eos = sorted(target.eos_ids)

    @torch.inference_mode()
    def run(prompt: Sequence[int], limit: int) -> list[int]:
        ids = torch.tensor(list(prompt), device=target.device)
        return _cut(model.decode(ids, limit, decoding=decoding).tokens.tolist(), limit, eos)

    return run


def _flashspec(config: MethodConfig, target: LoadedModel, draft: LoadedModel | None):
    from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
    from flashspec.engine import HuggingFaceDrafter, NgramDrafter, TargetModel

    if config.spec.policy != "constant" or config.threshold or config.spec.drafter not in ("assistant", "prompt-lookup"):
        return None
    device, dtype = target.device, target.dtype
    wrapped = TargetModel(target.name, device, dtype, model=target.model)
    if config.spec.drafter == "assistant":
        drafter = HuggingFaceDrafter(draft.name, device, dtype, model=draft.model)
    else:
        drafter = NgramDrafter(max_ngram=config.ngram)
    settings = FlashSpecConfig(
        device=str(device), dtype=str(dtype).removeprefix("torch."), drafter_strategy="bandit", compile=False,
        bandit=BanditConfig(n_arms=1), eos_token_ids=tuple(sorted(target.eos_ids)),
        sampling=SamplingConfig(temperature=0.0, gamma=config.lookahead),
    )
    engine = SpeculativeEngine(settings, [drafter], wrapped)
    eos = sorted(target.eos_ids)

    def run(prompt: Sequence[int], limit: int) -> list[int]:
        ids = torch.tensor([list(prompt)], device=device)
        result = engine.generate(ids, max_new_tokens=limit)
        return _cut(result.output_ids[0, : result.n_tokens_generated].tolist(), limit, eos)

    return run


def _cut(ids: list[int], limit: int, eos: Sequence[int]) -> list[int]:
    """Up to the limit and the first end of sequence, that included."""
    ids = ids[:limit]
    ends = [ids.index(token) for token in eos if token in ids]
    return ids[: min(ends) + 1] if ends else ids


