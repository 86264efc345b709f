"""What a visitor asked for, checked. Nothing that comes from a browser is used before it has passed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from specviz.decoding import METHODS, MethodConfig, Sampling
from specviz.errors import UsageError
from specviz.models import zoo
from specviz.models.locate import locate
from specviz.ui.limits import LIMITS, Limits, public
from specviz.ui.said import said
from specviz.ui.texts import language, text


class Refused(UsageError):
    """A request that cannot be carried out; ``field`` names the control on the page that it is about."""

    def __init__(self, message: str, field: str | None = None):
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class DecodeRequest:
    """One run: which models, how, on what."""

    pair: str
    method: MethodConfig
    prompt: str
    limit: int
    sampling: Sampling
    chat: bool
    lang: str = "en"


@dataclass(frozen=True)
class ProbeRequest:
    """Measure once what every policy would see: of a draft model, or of the target's own exit layers."""

    pair: str
    drafter: str  # "assistant" or "early-exit"
    prompt: str
    limit: int
    chat: bool
    target: str | None = None  # another target on the same prompt: the plain twin
    lang: str = "en"


@dataclass(frozen=True)
class RaceRequest:
    """The same prompt for several methods, one after another."""

    runs: tuple[DecodeRequest, ...]
    lang: str = "en"


# Between the target and the draft model of a pair that is typed and not chosen; longest such text in characters.
PLUS = " + "
LONGEST_PAIR = 1000


def pair_of(name: str) -> zoo.Pair:
    """The pair of the zoo of that name, or the one that a text such as "owner/target + owner/draft" stands for."""
    if name in zoo.PAIRS:
        return zoo.PAIRS[name]
    target, _, draft = name.partition(PLUS)
    return zoo.Pair(name, target, draft or None, "", "dynamic" if draft else "prompt-lookup")


class Reader:
    """Reads checked values out of a plain object, with messages in the visitor's language."""

    def __init__(self, data: object, lang: str = "en"):
        self.lang = language(lang)
        if not isinstance(data, Mapping):
            raise Refused(text("error.request", self.lang))
        self._data = data

    def has(self, name: str) -> bool:
        return self._data.get(name) is not None

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float | None:
        value = self._data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            raise self._refuse("number", name)
        if not low <= value <= high:
            raise self._refuse("range", name, low=low, high=high)
        return float(value)

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int | None:
        value = self.number(name, low, high, default)
        if value is None:
            return None
        if value != int(value):
            raise self._refuse("whole", name)
        return int(value)

    def choice(self, name: str, choices, default: str | None = None) -> str:
        value = self._data.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self._refuse("choice", name, choices=", ".join(choices))
        return value

    def string(self, name: str, longest: int, default: str | None = None) -> str:
        value = self._data.get(name, default)
        if not isinstance(value, str):
            raise self._refuse("text", name)
        if len(value) > longest:
            raise Refused(text("error.long", self.lang, length=len(value), limit=longest), name)
        return clean(value)

    def pair(self, name: str = "pair") -> str:
        """A pair of the zoo, or "target" or "target + draft": of the zoo where visitors are strangers, else any model."""
        given = self._data.get(name)
        if isinstance(given, str) and given in zoo.PAIRS:
            return given
        if not isinstance(given, str) or not given.strip() or len(given) > LONGEST_PAIR:
            raise self._refuse("choice", name, choices=", ".join(zoo.PAIRS))
        parts = [part.strip() for part in clean(given).split(PLUS)]
        if len(parts) > 2:
            raise self._refuse("choice", name, choices=", ".join(zoo.PAIRS))
        return PLUS.join(self._model(part, name) for part in parts)

    def _model(self, given: str, name: str) -> str:
        entry = zoo.find(given)
        if entry is not None:
            return entry.name
        if public():
            raise Refused(text("error.public", self.lang, choices=", ".join(zoo.PAIRS)), name)
        try:
            locate(given)
        except UsageError as error:
            raise Refused(said(str(error), self.lang), name) from None
        return given

    def flag(self, name: str, default: bool) -> bool:
        value = self._data.get(name)
        return default if value is None else value is True

    def get(self, name: str) -> Any:
        return self._data.get(name)

    def _refuse(self, why: str, name: str, **values: object) -> Refused:
        label = text(f"param.{name}", self.lang) if f"param.{name}" in _texts() else name
        return Refused(text(f"error.{why}", self.lang, name=label, **values), name)


def _texts():
    from specviz.ui.texts import CATALOGUE

    return CATALOGUE["en"]


def decode_request(data: object, lang: str = "en", limits: Limits = LIMITS) -> DecodeRequest:
    """Read a request for one run; Refused, in the visitor's language, where it is not one."""
    read = Reader(data, lang)
    name = read.choice("method", METHODS)
    parameters = METHODS[name].parameters
    given = {
        "lookahead": read.whole("lookahead", 0, limits.lookahead),
        "threshold": read.number("threshold", 0.0, 1.0),
        "exit_layer": read.whole("exit_layer", 1, 1000),
        "ngram": read.whole("ngram", 1, 16),
    }
    temperature = read.number("temperature", 0.0, 10.0, 0.0)
    prompt = read.string("prompt", limits.prompt)
    if not prompt.strip():
        raise Refused(text("error.empty", read.lang), "prompt")
    return DecodeRequest(
        pair=read.pair(),
        # A parameter that has no meaning for the method is left out: the page hides it, a link may still carry it.
        method=MethodConfig(name, **{key: value for key, value in given.items() if key in parameters}),
        prompt=prompt,
        limit=read.whole("limit", 1, limits.new_tokens, 96),
        sampling=Sampling(
            temperature=temperature,
            top_k=read.whole("top_k", 1, 10_000_000) if temperature else None,
            top_p=read.number("top_p", 1e-6, 1.0) if temperature else None,
            seed=read.whole("seed", -(2**53), 2**53, 0),
        ),
        chat=read.flag("chat", True),
        lang=read.lang,
    )


def probe_request(data: object, lang: str = "en", limits: Limits = LIMITS) -> ProbeRequest:
    """Read a request for a probe."""
    read = Reader(data, lang)
    name = read.pair()
    pair = pair_of(name)
    drafter = read.choice("drafter", ("assistant", "early-exit"), "assistant" if pair.draft else "early-exit")
    if drafter == "assistant" and not pair.draft:
        raise Refused(text("error.no_draft", read.lang), "pair")
    prompt = read.string("prompt", limits.prompt)
    if not prompt.strip():
        raise Refused(text("error.empty", read.lang), "prompt")
    return ProbeRequest(
        pair=name,
        drafter=drafter,
        prompt=prompt,
        limit=read.whole("limit", 1, limits.probe_tokens, 96),
        chat=read.flag("chat", True),
        target=TWINS.get(pair.target) if read.flag("twin", False) else None,
        lang=read.lang,
    )


# Target -> the same model trained without the recipe.
TWINS = {"tiny-layerskip": "tiny-plain"}


def race_request(data: object, lang: str = "en", limits: Limits = LIMITS) -> RaceRequest:
    """Read a request for a race: what a single run takes, and a list of methods (name or method with parameters)."""
    read = Reader(data, lang)
    wanted = read.get("methods")
    if not isinstance(wanted, list) or not 1 <= len(wanted) <= limits.racers:
        raise Refused(text("error.racers", read.lang, limit=limits.racers), "methods")
    shared = {key: read.get(key) for key in ("pair", "prompt", "limit", "chat", "temperature", "top_k", "top_p", "seed")}
    runs = []
    for method in wanted:
        own = {"method": method} if isinstance(method, str) else method
        if not isinstance(own, Mapping):
            raise Refused(text("error.request", read.lang))
        runs.append(decode_request({**own, **shared}, read.lang, limits))
    return RaceRequest(tuple(runs), read.lang)


def clean(value: str) -> str:
    """Text without half characters (lone surrogates), which no file and no reply could carry."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def field_of(error: UsageError) -> str | None:
    """The control that a message of the core is about: they begin with the name of the parameter."""
    word = str(error).split("=", 1)[0]
    known = ("lookahead", "threshold", "exit_layer", "ngram", "limit", "temperature", "top_k", "top_p", "seed")
    if word in known:
        return word
    return "prompt" if str(error).startswith("the prompt") else None


def to_plain(request: DecodeRequest | ProbeRequest | RaceRequest) -> dict[str, Any]:
    """A checked request as plain Python values, which another process can take."""
    return asdict(request)


def from_plain(kind: str, data: dict[str, Any]) -> DecodeRequest | ProbeRequest | RaceRequest:
    """The request that ``to_plain`` gave."""
    if kind == "probe":
        return ProbeRequest(**data)
    if kind == "race":
        return RaceRequest(tuple(from_plain("decode", run) for run in data["runs"]), data["lang"])
    return DecodeRequest(**{**data, "method": MethodConfig(**data["method"]), "sampling": Sampling(**data["sampling"])})
