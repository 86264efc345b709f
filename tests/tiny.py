"""Tiny random models and a tokenizer, built in code: the shared set that the tests decode with.

    target = tiny_model("llama")                      # cached: equal arguments give the same object
    target, draft = tiny_pair("llama", likeness=0.9)  # a draft that agrees with its target on some tokens
    other = tiny_model("llama", num_hidden_layers=4, seed=3, eos_ids=(5, 9))

The models are shared between tests: do not write to their weights or configs; take `fresh(...)` for that.
"""

from __future__ import annotations

import copy
import functools
import math

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from specviz.models.loading import LoadedModel, wrap

SPECIALS = ("<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>")
PAD, BOS, EOS = 0, 1, 2

# Merges in order of rank; Ġ is how byte-level tokenizers write a space.
_MERGES = (
    "t h|Ġ t|h e|Ġ a|i n|e r|Ġt he|o n|a n|r e|Ġ w|a t|e n|o u|Ġ s|Ġa n|Ġan d|n d|in g|e s|o r|i s|Ġ o|i t|Ġo f|"
    "d e|e f|d ef|r et|u r|ret ur|retur n|Ġ =|( )|: Ċ|Ġ Ġ|ĠĠ ĠĠ"
)

PROMPTS = (
    "The cat sat on",
    "def add(a, b):\n    return",
    "Once upon a time there was a small river, and",
    "東京は",
    "x",
    "naïve 🙂 and",
    "1 2 3 1 2 3 1 2 3 1 2",
)


@functools.cache
def tiny_tokenizer(chat: bool = False, bos: bool = False, eos: bool = False) -> PreTrainedTokenizerFast:
    """Byte-level BPE: 5 special tokens, 256 bytes, a few merges. Any text; characters may split over tokens.

    chat: with a chat template. bos, eos: adds them around a text by itself, as Llama and T5 do.
    """
    vocab = {token: index for index, token in enumerate(SPECIALS)}
    for symbol in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab[symbol] = len(vocab)
    merges = []
    for merge in _MERGES.split("|"):
        left, right = merge.split(" ")
        if left in vocab and right in vocab:
            merges.append((left, right))
            vocab.setdefault(left + right, len(vocab))
    core = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    if bos or eos:
        pattern = ("<s> " if bos else "") + "$A" + (" </s>" if eos else "")
        core.post_processor = processors.TemplateProcessing(
            single=pattern, special_tokens=[("<s>", BOS), ("</s>", EOS)]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
        clean_up_tokenization_spaces=False,
    )
    if chat:
        tokenizer.chat_template = (
            "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}"
        )
    return tokenizer


# Layers this weak let the last token and the place speak together: greedy text varies, without being chaotic.
INIT = 0.1
VOCAB = 304  # a little more than the tokenizer has, as real models pad their logits

_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": INIT,
    "tie_word_embeddings": False,
}
_GPT = {"n_embd": 64, "n_layer": 6, "n_head": 4, "n_positions": 512, "initializer_range": INIT}

# family -> config class, model class, the fields that make it tiny
FAMILIES: dict[str, tuple[str, str, dict]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", _SHAPE),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _SHAPE),
    "gpt_neox": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {key: value for key, value in _SHAPE.items() if key != "num_key_value_heads"},
    ),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {**_GPT, "tie_word_embeddings": False}),
    "opt": (
        "OPTConfig",
        "OPTForCausalLM",
        {
            "hidden_size": 64,
            "ffn_dim": 96,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "max_position_embeddings": 512,
            "word_embed_proj_dim": 64,
            "init_std": INIT,
            "tie_word_embeddings": False,
        },
    ),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**_SHAPE, "head_dim": 16}),
    # Windows this short are left behind by every prompt, so that sliding attention is really at work.
    "mistral": ("MistralConfig", "MistralForCausalLM", {**_SHAPE, "sliding_window": 12}),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {**_SHAPE, "head_dim": 16}),
    "gemma2": (
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {**_SHAPE, "head_dim": 16, "sliding_window": 12, "query_pre_attn_scalar": 16},
    ),
    "gemma3_text": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {
            **_SHAPE,
            "head_dim": 16,
            "sliding_window": 12,
            "query_pre_attn_scalar": 16,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
        },
    ),
    "phi": ("PhiConfig", "PhiForCausalLM", _SHAPE),
    "codegen": ("CodeGenConfig", "CodeGenForCausalLM", {**_GPT, "rotary_dim": 8, "tie_word_embeddings": False}),
    "opt_350m": (
        "OPTConfig",
        "OPTForCausalLM",
        {
            "hidden_size": 64,
            "ffn_dim": 96,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "max_position_embeddings": 512,
            "word_embed_proj_dim": 32,
            "do_layer_norm_before": False,
            "init_std": INIT,
            "tie_word_embeddings": False,
        },
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 96,
            "num_layers": 6,
            "num_decoder_layers": 6,
            "num_heads": 4,
            "decoder_start_token_id": PAD,
            "tie_word_embeddings": False,
        },
    ),
}


def tiny_model(family: str = "llama", *, seed: int = 0, chat: bool = False, eos_ids=(EOS,), **over) -> LoadedModel:
    """A random model of the family, float32, on the CPU; `over` replaces fields of its config.

    Its logits have clear gaps between first and second place, so that greedy decoding isn't nearly tied anywhere.
    """
    frozen = tuple(sorted((key, _hashable(value)) for key, value in over.items()))
    return _cached(family, seed, chat, tuple(eos_ids), frozen)


def tiny_pair(
    family: str = "llama", *, likeness: float = 0.97, seed: int = 0, chat: bool = False, eos_ids=(EOS,), **over
) -> tuple[LoadedModel, LoadedModel]:
    """A target and a draft model that agrees with it partly: the target with noise added to its head.

    likeness: 1 gives an exact copy; 0.97 agrees on about two tokens of three, 0.9 on two of five, 0.6 on one of ten.
    """
    target = tiny_model(family, seed=seed, chat=chat, eos_ids=eos_ids, **over)
    frozen = tuple(sorted((key, _hashable(value)) for key, value in over.items()))
    return target, _cached_draft(family, likeness, seed, chat, tuple(eos_ids), frozen)


@torch.inference_mode(False)
def fresh(loaded: LoadedModel) -> LoadedModel:
    """A copy that a test may change."""
    return wrap(copy.deepcopy(loaded.model), loaded.tokenizer, loaded.name)


def shallow(loaded: LoadedModel, layers: int) -> LoadedModel:
    """A Llama-shaped draft model made of the first layers of another, sharing nothing with it."""
    config = copy.deepcopy(loaded.model.config)
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    model = type(loaded.model)(config)
    model.load_state_dict(loaded.model.state_dict(), strict=False)
    model.generation_config = copy.deepcopy(loaded.model.generation_config)
    return wrap(model, loaded.tokenizer, f"{loaded.name}-first-{layers}")


@functools.cache
@torch.inference_mode(False)  # else the first test that asks in that mode makes a model that is unlike the others'
def _cached(family: str, seed: int, chat: bool, eos_ids: tuple[int, ...], over: tuple) -> LoadedModel:
    config_class, model_class, fields = FAMILIES[family]
    config = getattr(transformers, config_class)(
        **{
            "vocab_size": VOCAB,
            "bos_token_id": BOS,
            "eos_token_id": list(eos_ids) if len(eos_ids) != 1 else eos_ids[0],
            "pad_token_id": PAD,
            **fields,
            **{key: list(value) if isinstance(value, tuple) else value for key, value in over},
        }
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, model_class)(config)
        _sharpen(model)
    model.generation_config.eos_token_id = list(eos_ids)
    model.generation_config.pad_token_id = PAD
    encoder_decoder = bool(config.is_encoder_decoder)
    tokenizer = tiny_tokenizer(chat=chat, bos=family in ("llama", "opt", "opt_350m"), eos=encoder_decoder)
    return wrap(model, tokenizer, f"tiny-{family}-{seed}")


@functools.cache
@torch.inference_mode(False)
def _cached_draft(family, likeness, seed, chat, eos_ids, over) -> LoadedModel:
    target = _cached(family, seed, chat, eos_ids, over)
    model = copy.deepcopy(target.model)
    spread = math.sqrt(max(0.0, 1 - likeness**2))
    generator = torch.Generator().manual_seed(seed + 1)
    weight = model.get_output_embeddings().weight
    noise = torch.randn(weight.shape, generator=generator) * weight.std()
    weight.copy_(likeness * weight + spread * noise)
    return wrap(model, target.tokenizer, f"{target.name}-draft-{likeness:g}")


def _sharpen(model) -> None:
    """Scale embedding and head so that the logits spread over several units."""
    tokens = model.get_input_embeddings()
    # Gemma multiplies its embeddings by the root of the width: at full loudness they drown its layers, which have
    # no norm behind them as those of its successors have.
    loudness = math.sqrt(tokens.embed_scale) if model.config.model_type == "gemma" else 1.0
    head = model.get_output_embeddings()
    if model.config.is_encoder_decoder:
        # T5's config ties its head whatever it is told; a random model that is tied only says its last token again.
        model.config.tie_word_embeddings = False
        head.weight = torch.nn.Parameter(torch.empty_like(head.weight))
    with torch.no_grad():
        for module in model.modules():  # T5 holds one of them for its encoder, one for its decoder
            if isinstance(module, torch.nn.Embedding) and module.weight.shape == tokens.weight.shape:
                module.weight.normal_(std=0.5 / loudness)
        head.weight.normal_(std=0.5)


def _hashable(value):
    return tuple(value) if isinstance(value, list) else value
