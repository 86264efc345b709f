"""Methods by name: drafter + policy + verifier, and the one configuration that describes them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from specviz.decoding import policies
from specviz.decoding.drafters import (
    AssistantDrafter,
    Drafter,
    EarlyExitDrafter,
    NoDrafter,
    PromptLookupDrafter,
)
from specviz.decoding.policies import StopPolicy, run_lengths
from specviz.decoding.sampling import Picker
from specviz.decoding.verifiers import FullVerifier, RemainderVerifier, Verifier
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel, check_pair
from specviz.models.streams import ids_tensor, layer_count, open_split_stream, open_stream

MAX_LOOKAHEAD = 1024


@dataclass(frozen=True)
class MethodSpec:
    """A row of the registry. defaults: the parameters that apply, with the value taken where none is given."""

    summary: str
    drafter: str  # "none", "assistant", "early-exit", "prompt-lookup"
    policy: str  # "constant", "heuristic", "oracle"
    defaults: Mapping[str, Any]

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.defaults)


METHODS: dict[str, MethodSpec] = {
    "autoregressive": MethodSpec("the target alone, one token a forward", "none", "constant", {}),
    "constant": MethodSpec(
        "a draft model guesses a fixed number of tokens", "assistant", "constant", {"lookahead": 5}
    ),
    "heuristic": MethodSpec(
        "a draft model; 2 more guesses after a full acceptance, else 1 fewer",
        "assistant", "heuristic", {"lookahead": 5, "threshold": 0.0},
    ),
    "dynamic": MethodSpec(
        "a draft model stops when its own confidence falls below the threshold",
        "assistant", "constant", {"lookahead": 20, "threshold": 0.4},
    ),
    "oracle": MethodSpec(
        "a draft model that knows when it would be refused: the bound for every policy",
        "assistant", "oracle", {},
    ),
    "prompt-lookup": MethodSpec(
        "copies what followed the same words earlier in the text", "prompt-lookup", "constant",
        {"lookahead": 10, "ngram": 2},
    ),
    "early-exit": MethodSpec(
        "the target's own first layers guess a fixed number of tokens", "early-exit", "constant",
        {"exit_layer": None, "lookahead": 4},
    ),
    "early-exit-heuristic": MethodSpec(
        "the target's own first layers; 2 more guesses after a full acceptance, else 1 fewer",
        "early-exit", "heuristic", {"exit_layer": None, "lookahead": 5, "threshold": 0.0},
    ),
    "early-exit-dynamic": MethodSpec(
        "the target's own first layers stop when their confidence falls below the threshold",
        "early-exit", "constant", {"exit_layer": None, "lookahead": 12, "threshold": 0.4},
    ),
    "early-exit-oracle": MethodSpec(
        "the target's own first layers, knowing when they would be refused",
        "early-exit", "oracle", {"exit_layer": None},
    ),
}


@dataclass(frozen=True)
class MethodConfig:
    """A method and its parameters; None stands for the method's own default.

    lookahead: most drafted tokens an iteration. threshold: confidence (0..1) below which drafting stops.
    exit_layer: E, the number of first layers that draft. ngram: longest n-gram that prompt lookup matches.
    """

    name: str = "dynamic"
    lookahead: int | None = None
    threshold: float | None = None
    exit_layer: int | None = None
    ngram: int | None = None

    def __post_init__(self):
        if self.name not in METHODS:
            raise UsageError(f"method {self.name!r}: choose one of {', '.join(METHODS)}")
        if self.lookahead is not None and not 0 <= self.lookahead <= MAX_LOOKAHEAD:
            raise UsageError(f"lookahead={self.lookahead}: choose 0..{MAX_LOOKAHEAD}")
        if self.threshold is not None and not 0.0 <= self.threshold <= 1.0:
            raise UsageError(f"threshold={self.threshold}: choose 0..1, it is a probability")
        if self.ngram is not None and not 1 <= self.ngram <= 16:
            raise UsageError(f"ngram={self.ngram}: choose 1..16")
        for name in ("lookahead", "threshold", "exit_layer", "ngram"):
            if getattr(self, name) is not None and name not in self.spec.parameters:
                raise UsageError(f"{name} has no meaning for the method {self.name}: leave it out")

    @property
    def spec(self) -> MethodSpec:
        return METHODS[self.name]

    def filled(self, layers: int | None = None) -> MethodConfig:
        """The same with every parameter that applies given a value. layers: the target's number of layers."""
        missing = {k: v for k, v in self.spec.defaults.items() if getattr(self, k) is None}
        if "exit_layer" in missing:
            if layers is None:
                raise UsageError(f"the method {self.name} needs an exit layer: give exit_layer")
            missing["exit_layer"] = max(1, round(layers / 3))
        config = replace(self, **missing)
        if layers is not None and config.exit_layer is not None and not 1 <= config.exit_layer < layers:
            raise UsageError(f"exit_layer={config.exit_layer}: this model has {layers} layers, choose 1..{layers - 1}")
        return config

    def as_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_names(cls, given: Mapping[str, Any]) -> MethodConfig:
        """Read a configuration that uses our names or those of transformers' generation config.

        num_assistant_tokens, num_assistant_tokens_schedule (constant, heuristic, heuristic_transient, dynamic),
        assistant_confidence_threshold, assistant_early_exit, prompt_lookup_num_tokens, max_matching_ngram_size.
        There, "constant" with a threshold above 0 is what is called dynamic here. Unknown names are an error.
        """
        known = {"name", "method", "lookahead", "threshold", "exit_layer", "ngram", *_SOURCE_NAMES}
        for key in given:
            if key not in known:
                raise UsageError(f"{key}: unknown parameter, choose from {', '.join(sorted(known))}")
        ours = {_SOURCE_NAMES.get(key, key): value for key, value in given.items() if value is not None}
        name = ours.pop("name", None) or ours.pop("method", None)
        schedule = ours.pop("schedule", None)
        if name is None:
            name = _name_of(schedule, ours)
        allowed = METHODS[name].parameters if name in METHODS else ()
        if "threshold" in ours and not ours["threshold"] and "threshold" not in allowed:
            del ours["threshold"]  # 0 switches the criterion off, which is what a method without it does
        return cls(name, **ours)

    @classmethod
    def from_generation_config(cls, generation_config: Any) -> MethodConfig:
        """The method that transformers would use with a draft model that carries this generation config.

        Values that are not set there are transformers' own defaults: 20 tokens, schedule constant, threshold 0.4.
        """
        def read(key: str, default: Any) -> Any:
            value = getattr(generation_config, key, None)
            return default if value is None else value

        return cls.from_names({
            "num_assistant_tokens": read("num_assistant_tokens", 20),
            "num_assistant_tokens_schedule": read("num_assistant_tokens_schedule", "constant"),
            "assistant_confidence_threshold": read("assistant_confidence_threshold", 0.4),
        })


_SOURCE_NAMES = {
    "num_assistant_tokens": "lookahead",
    "num_assistant_tokens_schedule": "schedule",
    "assistant_confidence_threshold": "threshold",
    "assistant_early_exit": "exit_layer",
    "prompt_lookup_num_tokens": "lookahead",
    "max_matching_ngram_size": "ngram",
}


def _name_of(schedule: str | None, parameters: Mapping[str, Any]) -> str:
    """The method that transformers' parameters describe."""
    if "ngram" in parameters:
        return "prompt-lookup"
    if schedule not in (None, "constant", "heuristic", "heuristic_transient", "dynamic"):
        raise UsageError(
            f"num_assistant_tokens_schedule={schedule!r}: choose constant, heuristic, heuristic_transient or dynamic"
        )
    prefix = "early-exit" if "exit_layer" in parameters else ""
    if schedule in ("heuristic", "heuristic_transient"):
        return f"{prefix}-heuristic" if prefix else "heuristic"
    if schedule == "dynamic" or parameters.get("threshold"):
        return f"{prefix}-dynamic" if prefix else "dynamic"
    return prefix or "constant"


@dataclass
class Session:
    """One run: everything that has a cache. ``sequence`` starts as what the target has to continue."""

    sequence: list[int]
    drafter: Drafter
    policy: StopPolicy
    verifier: Verifier
    stream_kinds: dict[str, str]
    setup: dict[str, Any]

    def prefill(self) -> None:
        self.verifier.prefill(self.sequence)
        self.drafter.prefill(self.sequence)

    def rewind(self, length: int) -> None:
        self.verifier.rewind(length)
        self.drafter.rewind(length)

    def close(self) -> None:
        self.drafter.close()
        self.verifier.close()


@dataclass(frozen=True)
class Method:
    """A configuration with the models that carry it out. Holds no cache: ``open`` it for each run."""

    config: MethodConfig
    target: LoadedModel
    draft: LoadedModel | None

    def open(self, prompt_ids: Sequence[int], limit: int, picker: Picker) -> Session:
        """Open the streams of one run. The oracle decodes once before, to know its lengths."""
        start, encoder_ids = starting_sequence(self.target, prompt_ids)
        room = len(start) + limit
        lengths, setup = None, {}
        if self.config.spec.policy == "oracle":
            if not picker.sampling.greedy:
                raise UsageError("the oracle is defined for greedy decoding only: set temperature to 0")
            lengths, setup = self._oracle_lengths(prompt_ids, limit)
        opened = []
        try:
            if self.config.spec.drafter == "early-exit":
                stream = open_split_stream(self.target, length=room)
                opened.append(stream)
                exit_layer = self.config.exit_layer
                drafter: Drafter = EarlyExitDrafter(stream, exit_layer, picker, self.target.eos_ids)
                verifier: Verifier = RemainderVerifier(stream, exit_layer)
            else:
                stream = open_stream(self.target, encoder_ids=encoder_ids, length=room)
                opened.append(stream)
                verifier = FullVerifier(stream)
                drafter = self._drafter(picker, encoder_ids, room, opened)
        except BaseException:
            for stream in opened:
                stream.close()
            raise
        kinds = dict(zip(("target", "draft"), (stream.kind for stream in opened), strict=False))
        return Session(list(start), drafter, self._policy(lengths), verifier, kinds, setup)

    def _drafter(self, picker: Picker, encoder_ids, room: int, opened: list) -> Drafter:
        if self.config.spec.drafter == "none":
            return NoDrafter()
        if self.config.spec.drafter == "prompt-lookup":
            return PromptLookupDrafter(self.config.ngram, self.target.eos_ids)
        stream = open_stream(self.draft, encoder_ids=encoder_ids, length=room)
        opened.append(stream)
        shared = check_pair(self.target, self.draft)
        return AssistantDrafter(
            stream, picker, self.target.eos_ids, shared, self.draft.vocab_size, self.draft.context
        )

    def _policy(self, lengths: Sequence[int] | None) -> StopPolicy:
        if lengths is not None:
            return policies.Oracle(lengths)
        kind = policies.Heuristic if self.config.spec.policy == "heuristic" else policies.Constant
        return kind(self.config.lookahead or 0, self.config.threshold or 0.0)

    @torch.inference_mode()
    def _oracle_lengths(self, prompt_ids: Sequence[int], limit: int) -> tuple[list[int], dict[str, Any]]:
        """Decode with the target alone, then read the result once with the drafter: where would it be right?"""
        from specviz.decoding.decode import decode  # decode opens methods, so the import runs one way at load

        began = time.perf_counter()
        output: list[int] = []
        for record in decode(prompt_ids, Method(MethodConfig("autoregressive"), self.target, None), limit):
            if record.kind == "iteration":
                output.extend(record.ids)
        picks = drafter_picks(self, prompt_ids, output)
        match = [pick == token for pick, token in zip(picks, output, strict=True)]
        return run_lengths(match), {"oracle_seconds": time.perf_counter() - began}


@torch.inference_mode()
def drafter_picks(method: Method, prompt_ids: Sequence[int], output: Sequence[int]) -> list[int]:
    """The token that the method's drafter picks greedily at each output position, given the true text before it.

    One teacher-forced pass; (N,) -> N ids. Positions past the draft model's context window give -1.
    """
    start, encoder_ids = starting_sequence(method.target, prompt_ids)
    if not output:
        return []
    sequence = [*start, *output[:-1]]
    early = method.config.spec.drafter == "early-exit"
    if early:
        stream = open_split_stream(method.target, length=len(sequence))
    else:
        last_id = method.draft.vocab_size - 1
        sequence = [min(token, last_id) for token in sequence[: method.draft.context]]
        stream = open_stream(method.draft, encoder_ids=encoder_ids, length=len(sequence))
    try:
        keep = max(len(sequence) - len(start) + 1, 0)
        ids = ids_tensor(sequence, stream.device)
        if not keep:
            return [-1] * len(output)
        if early:
            hidden = stream.run(stream.embed(ids), 0, method.config.exit_layer)
            picks = stream.head(hidden[:, -keep:]).argmax(dim=-1).tolist()
        else:
            shared = check_pair(method.target, method.draft)
            picks = stream.forward(ids, keep=keep)[:, :shared].argmax(dim=-1).tolist()
    finally:
        stream.close()
    return picks + [-1] * (len(output) - len(picks))


def starting_sequence(target: LoadedModel, prompt_ids: Sequence[int]) -> tuple[list[int], list[int] | None]:
    """What the decoder continues, and what the encoder reads (None for decoder-only models)."""
    if not target.is_encoder_decoder:
        return list(prompt_ids), None
    config = target.model.generation_config
    first = config.decoder_start_token_id
    if first is None:
        first = target.model.config.decoder_start_token_id
    if first is None:
        raise UsageError(f"{target.name}: its config names no decoder_start_token_id, so nothing can be decoded")
    return [int(first)], list(prompt_ids)


def build(config: MethodConfig, target: LoadedModel, draft: LoadedModel | None = None) -> Method:
    """A method ready to decode. UsageError where the models do not fit the configuration."""
    spec = config.spec
    if spec.drafter == "assistant":
        if draft is None:
            raise UsageError(f"the method {config.name} needs a draft model: give one, or choose another method")
        check_pair(target, draft)
        return Method(config.filled(), target, draft)
    if spec.drafter == "early-exit":
        return Method(config.filled(layer_count(target)), target, None)
    return Method(config.filled(), target, None)
