"""Everything that needs a GPU, in under four minutes: is the captured path lossless, is it used, and how fast is it?

The models are of real size, built from their config with random weights, so nothing is downloaded. Random layers would
never agree with each other; the layers behind the exit are damped until their part in the result is small, which sets
how many drafted tokens are accepted. That makes acceptance a dial, not a finding: speeds here say what the engine does
at that acceptance, nothing about any trained model. Without a GPU the same steps run small, on the CPU.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable

import torch

from specviz.bench import engines, measure, report
from specviz.decoding import MethodConfig
from specviz.models.loading import LoadedModel, default_device, wrap

_BUDGET = 200.0  # seconds; a step that would begin later is left out, and that is said
_DAMPING = 0.05

# (title, hidden, intermediate, layers, heads, key heads, vocabulary, exit layer)
_REAL = (
    ("Llama-3.2-1B shape", 2048, 8192, 16, 32, 8, 128256, 4),
    ("Llama-3.1-8B shape", 4096, 14336, 32, 32, 8, 128256, 4),
)
_SMALL = (("small shape", 128, 320, 12, 4, 4, 2048, 4),)


class _Words:
    """Stands for a tokenizer: ids are written as numbers."""

    eos_token_id = None
    chat_template = None
    backend_tokenizer = None

    def decode(self, ids, **_) -> str:
        return "".join(f" {token}" for token in ids)


def device_check(device: str | None = None, tell: Callable[[str], None] | None = print) -> int:
    """Run the check and print it, last line JSON; the exit status is 1 where an output differs."""
    began = time.monotonic()
    place = torch.device(device) if device else default_device()
    say = tell or (lambda text: None)
    real = place.type == "cuda"
    name = torch.cuda.get_device_name(place) if real else "CPU"
    say(f"device: {name}; random weights, layers behind the exit damped to {_DAMPING:g}: acceptance is set, not found")
    if not real:
        say("no GPU here: the same steps on a small model; nothing of this says anything about a GPU")
    results, faults = [], 0
    for shape in _REAL if real else _SMALL:
        if time.monotonic() - began > _BUDGET:
            say(f"{shape[0]}: left out, the time is used up")
            continue
        found = _check(shape, place, real, began, say)
        faults += found["differing"]
        results.append(found)
        if real:
            torch.cuda.empty_cache()
    seconds = time.monotonic() - began
    say(f"{seconds:.0f} s; " + ("every output is the target's own" if not faults else f"{faults} outputs differ"))
    print(json.dumps({"device": name, "seconds": seconds, "differing": faults, "models": results}))
    return 1 if faults else 0


def _check(shape: tuple, place: torch.device, real: bool, began: float, say: Callable[[str], None]) -> dict:
    title, *_, exit_layer = shape
    target = random_model(shape, place, torch.bfloat16 if real else torch.float32)
    draft = first_layers(target, exit_layer)
    peers = engines.copy_for_peers(target)
    helper = engines.copy_for_peers(draft)
    configs = (
        MethodConfig("autoregressive"), MethodConfig("constant", lookahead=4), MethodConfig("dynamic", lookahead=8),
        MethodConfig("early-exit", exit_layer=exit_layer, lookahead=4),
    )
    racing = [engines.ours(config, target, draft) for config in configs]
    racing += [e for config in configs if (e := engines.transformers_engine(config, peers, helper)) is not None]
    generator = torch.Generator().manual_seed(0)
    prompts = [(f"random-{i}", torch.randint(0, shape[6], (64,), generator=generator).tolist()) for i in range(2)]
    limit, repetitions = (96, 3) if real else (24, 2)
    rows = measure.measure(
        racing, prompts, limit, repetitions, setting={}, enough=lambda: time.monotonic() - began > _BUDGET * 0.8
    )
    # Our own plain decoding is what the others have to give: in bf16 another library rounds otherwise.
    own = racing[0].name
    found = report.lines(rows, next(e.name for e in racing if e.family == "transformers"), truth=own)
    say(f"\n{title}, {str(target.dtype).removeprefix('torch.')}")
    say(report.table(found, "transformers generate()"))
    differing = [line.engine for line in found if line.family == "ours" and line.refused]
    return {
        "title": title, "differing": len(differing), "dtype": str(target.dtype),
        "engines": [
            {"engine": line.engine, "ms": line.ms, "stream": line.stream, "acceptance": line.acceptance,
             "against_generate": line.against.value if line.against else None, "refused": line.refused}
            for line in found
        ],
    }


def random_model(shape: tuple, place: torch.device, dtype: torch.dtype) -> LoadedModel:
    """A Llama of this shape, made on the device; the layers behind the exit are damped."""
    from transformers import LlamaConfig, LlamaForCausalLM

    title, hidden, intermediate, layers, heads, key_heads, vocabulary, exit_layer = shape
    config = LlamaConfig(
        hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=key_heads, vocab_size=vocabulary, max_position_embeddings=2048, tie_word_embeddings=True,
        eos_token_id=None, bos_token_id=None, pad_token_id=0,
    )
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    try:
        torch.set_default_dtype(dtype)
        with torch.device(place):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        # Logits with clear gaps: plain initialisation leaves them nearly tied, and rounding would decide.
        model.model.embed_tokens.weight.normal_(std=0.3)
        for layer in model.model.layers[exit_layer:]:
            layer.self_attn.o_proj.weight.mul_(_DAMPING)
            layer.mlp.down_proj.weight.mul_(_DAMPING)
    model.generation_config.eos_token_id = None
    return wrap(model, _Words(), title)


def first_layers(target: LoadedModel, count: int) -> LoadedModel:
    """A draft model made of the target's first layers, holding weights of its own."""
    config = copy.deepcopy(target.model.config)
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:count]
    with torch.device("meta"):
        model = type(target.model)(config)
    state = {name: value.clone() for name, value in target.model.state_dict().items() if _kept(name, count)}
    model.load_state_dict(state, assign=True, strict=False)
    model.tie_weights()
    model.model.rotary_emb = copy.deepcopy(target.model.model.rotary_emb)
    model.generation_config = copy.deepcopy(target.model.generation_config)
    return wrap(model, target.tokenizer, f"{target.name}, first {count} layers")


def _kept(name: str, count: int) -> bool:
    parts = name.split(".")
    return "layers" not in parts or int(parts[parts.index("layers") + 1]) < count
