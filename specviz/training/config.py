"""The settings of a training run: one frozen object, saved with the run, read back by ``--resume``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from specviz.errors import UsageError
from specviz.training.recipe import CURRICULA, Recipe


@dataclass(frozen=True)
class ModelShape:
    """The size of a Llama-shaped model."""

    layers: int = 12
    hidden: int = 128
    intermediate: int = 320
    heads: int = 4
    vocabulary: int = 2048


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a run computes. ``tokens`` is 0 until a budget in minutes has been measured out.

    contexts: (share of the training, sequence length) pairs; each length is used until that share is reached.
    """

    kind: str  # layerskip, plain, distill, shallow (distill with layers of the target's own)
    shape: ModelShape = field(default_factory=ModelShape)
    recipe: Recipe = field(default_factory=Recipe)
    corpus: tuple[str, ...] = ()
    stdlib: bool = True
    tokens: int = 0
    minutes: float = 0.0
    stop_step: int = 0  # end there, with all schedules as if it went on to ``tokens`` (0: do not)
    first_step: int = 0  # begin there, with ``weights``; the learning rate warms up again, since the optimizer starts anew
    weights: str = ""
    layer_order: tuple[int, ...] = ()  # where each layer of ``weights`` goes: position -> its old number
    batch_tokens: int = 2048
    contexts: tuple[tuple[float, int], ...] = ((0.5, 128), (0.9, 256), (1.0, 512))
    learning_rate: float = 3e-3
    warmup_steps: int = 100
    weight_decay: float = 0.1
    seed: int = 0
    evaluate_every: int = 400_000
    target: str = ""
    generated_share: float = 0.0  # of a batch, text the target wrote
    generated_rows: int = 4096
    kept_layers: tuple[int, ...] = ()  # shallow: the target's layers that the draft begins with
    head_tokens: int = 0  # shallow: rows of the trimmed head
    sharpness: float = 1.0  # the target's distribution is raised to this power before it is learned

    @property
    def steps(self) -> int:
        return max(1, -(-self.tokens // self.batch_tokens))

    def context_at(self, step: int) -> int:
        """The sequence length of a step."""
        return next(length for share, length in self.contexts if step < share * self.steps or share >= 1.0)

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up over ``warmup_steps`` or a tenth of a short run, then linear decay to a fiftieth."""
        warm = min(1.0, (step + 1 - self.first_step) / max(1, min(self.warmup_steps, self.steps // 10)))
        left = 1.0 - step / self.steps
        return self.learning_rate * warm * max(left, 0.02)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def of(cls, raw: dict) -> TrainConfig:
        """From the plain values that ``asdict`` gives, after JSON. KeyError, TypeError or ValueError for anything else."""
        raw = dict(raw)
        raw["shape"], raw["recipe"] = ModelShape(**raw["shape"]), Recipe(**raw["recipe"])
        raw["corpus"], raw["layer_order"] = tuple(raw["corpus"]), tuple(raw.get("layer_order", ()))
        raw["kept_layers"] = tuple(raw.get("kept_layers", ()))
        raw["contexts"] = tuple((share, length) for share, length in raw["contexts"])
        return cls(**raw)

    @classmethod
    def load(cls, path: Path) -> TrainConfig:
        """Read a saved configuration; UsageError when there is none or it is not one of ours."""
        try:
            return cls.of(json.loads(path.read_text()))
        except FileNotFoundError:
            raise UsageError(f"{path.parent}: nothing to resume here, start without --resume") from None
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path}: not a training configuration ({error})") from None

    def check(self) -> TrainConfig:
        """Itself, if the numbers can work together; else UsageError."""
        shape, recipe = self.shape, self.recipe
        for name in ("layers", "hidden", "intermediate", "heads", "vocabulary"):
            if getattr(shape, name) < 1:
                raise UsageError(f"--{name} {getattr(shape, name)}: must be at least 1")
        if shape.hidden % (2 * shape.heads):
            raise UsageError(f"--hidden {shape.hidden}: must be a multiple of twice --heads ({2 * shape.heads})")
        if not 300 <= shape.vocabulary <= 65_536:
            raise UsageError(f"--vocabulary {shape.vocabulary}: choose 300 to 65536")
        if not 0 <= recipe.dropout < 1:
            raise UsageError(f"--dropout {recipe.dropout}: choose 0 up to, but not, 1")
        if recipe.curriculum not in CURRICULA:
            raise UsageError(f"--curriculum {recipe.curriculum}: choose one of {', '.join(CURRICULA)}")
        if recipe.rotation < 1 or recipe.exit_scale <= 0 or not 0 < recipe.exit_rows <= 1:
            raise UsageError("--rotation must be at least 1, --exit-scale above 0, --exit-rows above 0 and at most 1")
        if not 0 <= recipe.last_share < 1 or not 0 < recipe.exit_depth <= 1:
            raise UsageError("--last-share must be at least 0 and below 1, --exit-depth above 0 and at most 1")
        if not 0 <= recipe.own_from <= 1:
            raise UsageError(f"--own-from {recipe.own_from}: choose 0 to 1")
        if self.layer_order and sorted(self.layer_order) != list(range(shape.layers)):
            raise UsageError(f"--layer-order: name each of the layers 0 to {shape.layers - 1} once")
        if self.tokens <= 0 and self.minutes <= 0:
            raise UsageError("say how long to train: --minutes or --tokens, above 0")
        if self.learning_rate <= 0:
            raise UsageError(f"--learning-rate {self.learning_rate}: must be above 0")
        if any(self.batch_tokens % length for _, length in self.contexts):
            raise UsageError(f"--batch-tokens {self.batch_tokens}: must be a multiple of every length in --contexts")
        return self


# What each recipe means when nothing else is said. The plain twin differs from layerskip in the recipe alone. The exits of a
# model this small need more weight than the paper's formula gives them (0.06 of the loss, at every fourth step, for exit 4
# of 12): trained with a third power of it, exit 4 lagged 0.5 nats behind the full model for as long as was watched.
LAYERSKIP = TrainConfig(
    "layerskip", recipe=Recipe(dropout=0.1, exits=True, exit_power=0.0, exit_depth=0.5, last_share=0.5)
)
PLAIN = replace(LAYERSKIP, kind="plain", recipe=Recipe())
DISTILL = TrainConfig(
    "distill",
    shape=ModelShape(layers=2, hidden=192, intermediate=512, heads=6),
    contexts=((0.9, 256), (1.0, 512)),
    generated_share=0.5,
    sharpness=2.0,
)
SHALLOW = TrainConfig(
    "shallow",
    tokens=3_000_000,
    # Tried over 68 to 86 thousand tokens each: small steps learn most (a batch of 256, 512, 1024: 28, 26, 23 % of the target's
    # picks are found), layers from the middle a little more than the last ones (29 %), 4e-3 and a sharper target less.
    kept_layers=(0, 1, 12, 22),
    head_tokens=8192,
    batch_tokens=256,
    contexts=((1.0, 256),),  # not used: texts are taken whole
    learning_rate=2e-3,
    warmup_steps=50,
    weight_decay=0.01,
    evaluate_every=200_000,
    sharpness=1.0,
)
DEFAULTS = {config.kind: config for config in (LAYERSKIP, PLAIN, DISTILL, SHALLOW)}


def parse_contexts(text: str) -> tuple[tuple[float, int], ...]:
    """``128:0.5,256:0.9,512`` -> ((0.5, 128), (0.9, 256), (1.0, 512)). UsageError for anything else."""
    try:
        pairs = []
        for part in text.split(","):
            length, _, share = part.partition(":")
            pairs.append((float(share) if share else 1.0, int(length)))
    except ValueError:
        pairs = []
    shares = [share for share, _ in pairs]
    if not pairs or shares[-1] != 1.0 or shares != sorted(set(shares)) or any(length < 8 for _, length in pairs):
        raise UsageError(f"--contexts {text}: write it like 128:0.5,256:0.9,512")
    return tuple(pairs)


def parse_layers(text: str) -> tuple[int, ...]:
    """``0,1,29`` -> (0, 1, 29). UsageError for anything but numbers."""
    return _numbers(text, "--kept-layers")


def parse_order(text: str) -> tuple[int, ...]:
    """``0,2,1`` -> (0, 2, 1). UsageError for anything but numbers."""
    return _numbers(text, "--layer-order")


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} {text}: write it like 0,1,4,5,2,3") from None
