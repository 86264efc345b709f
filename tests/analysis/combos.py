"""Random combinations of models, prompts, policies and parameters, and the comparison of a simulation with a real run."""

from __future__ import annotations

import functools
import random
from collections import Counter
from dataclasses import dataclass, field

from specviz.analysis.as_trace import as_trace
from specviz.analysis.measure import measure_probe
from specviz.analysis.probe import Probe
from specviz.analysis.prompts import load_prompts
from specviz.analysis.simulate import Policy, nearest_tie, simulate
from specviz.decoding import MethodConfig, build, decode
from specviz.models.loading import LoadedModel, encode_prompt, load_model
from specviz.trace import Trace
from tests.tiny import EOS, PROMPTS, tiny_model, tiny_pair

NEAR = 1e-4
ASSISTED = ("constant", "heuristic", "dynamic", "oracle")
EARLY = ("early-exit", "early-exit-heuristic", "early-exit-dynamic", "early-exit-oracle")
FAMILIES = ("llama", "llama", "llama", "qwen2", "gpt2", "opt", "gpt_neox")
MAX_LOOKAHEAD = 24


@dataclass
class Tally:
    """What was compared; `ties` holds the distance of every admitted difference."""

    combinations: int = 0
    iterations: int = 0
    inexact: int = 0
    ties: list[float] = field(default_factory=list)
    stops: Counter = field(default_factory=Counter)
    methods: Counter = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.combinations} combinations, {self.iterations} iterations equal, {len(self.ties)} near ties, "
            f"{self.inexact} inexact; stops {dict(self.stops)}, methods {dict(self.methods)}"
        )


def compare(target: LoadedModel, draft: LoadedModel | None, probe: Probe, config: MethodConfig, tally: Tally) -> None:
    """Run the method for real and hold the simulated log against it, field by field."""
    config = config.filled(probe.layers)
    asked = probe.limit + (probe.end == "context")  # where the window was nearer, more had been asked for
    real = Trace.collect(decode(probe.prompt_ids, build(config, target, draft), asked))
    simulation = simulate(probe, Policy.of(config), config.exit_layer)
    assert simulation.exact or "heuristic" in config.name, config
    mine = as_trace(probe, simulation)
    tally.combinations += 1
    tally.methods[config.name] += 1
    tally.inexact += not simulation.exact
    for simulated, ours, logged in zip(simulation.iterations, mine.iterations, real.iterations, strict=False):
        if fields(ours) != fields(logged):
            gap = nearest_tie(probe, simulation, simulated)
            if not simulation.exact:
                return
            assert gap < NEAR, f"{config}, {probe.target}: iteration {ours} where {logged} was logged, nearest tie {gap}"
            tally.ties.append(gap)
            return
        for a, b in zip(ours.draft, logged.draft, strict=True):
            assert abs(a.confidence - b.confidence) < 1e-3
        tally.iterations += 1
        tally.stops[logged.stop] += 1
    assert len(mine.iterations) == len(real.iterations)
    assert mine.output_ids == real.output_ids
    assert mine.text == real.text
    assert mine.footer.end == real.footer.end
    assert simulation.drafted == real.footer.drafted
    assert simulation.accepted == real.footer.accepted


def fields(iteration) -> tuple:
    """What a simulated and a logged iteration share; the text of refused tokens depends on what stood before them."""
    return (
        iteration.index, iteration.start, iteration.drafted, iteration.accepted, iteration.stop, iteration.policy,
        tuple(token.id for token in iteration.draft), iteration.text,
        iteration.ending and (iteration.ending.id, iteration.ending.text, iteration.ending.kind),
    )  # fmt: skip


def random_config(random_: random.Random, name: str, probe: Probe) -> MethodConfig:
    chosen = {}
    config = MethodConfig(name)
    if "lookahead" in config.spec.parameters:
        chosen["lookahead"] = random_.choice([0, 1, 2, 3, 4, 5, 7, 10, 16, MAX_LOOKAHEAD])
    if "threshold" in config.spec.parameters:
        # A confidence that occurs, as it occurs, is the threshold most likely to be decided differently.
        occurring = float(probe.confidence.ravel()[random_.randrange(probe.confidence.size)])
        chosen["threshold"] = random_.choice([0.0, 1.0, 0.4, random_.random(), random_.random(), occurring + 1e-3])
        chosen["threshold"] = min(chosen["threshold"], 1.0)
        if "heuristic" in name:
            chosen["threshold"] = random_.choice([0.0, chosen["threshold"]])
    if "exit_layer" in config.spec.parameters:
        chosen["exit_layer"] = random_.choice(probe.rows)
    return MethodConfig(name, **chosen)


@functools.cache
def alone(target: LoadedModel, prompt_ids: tuple[int, ...], limit: int) -> Trace:
    return Trace.collect(decode(prompt_ids, build(MethodConfig("autoregressive"), target), limit))


def random_case(random_: random.Random) -> tuple[LoadedModel, LoadedModel | None, Probe]:
    """Models, prompt, stop tokens that really occur, limit, and the probe of a draft model or of exit layers."""
    early = random_.random() < 0.5
    family = random_.choice(FAMILIES if early else (*FAMILIES, "t5"))
    seed, prompt = random_.randrange(3), random_.choice(PROMPTS)
    likeness = random_.choice([0.0, 0.5, 0.8, 0.8, 0.95, 1.0])
    over = {"max_position_embeddings": 48} if family == "llama" and random_.random() < 0.2 else {}
    target, draft = tiny_pair(family, likeness=likeness, seed=seed, **over)
    prompt_ids = tuple(encode_prompt(target, prompt))
    limit = random_.choice([1, 2, 7, 24, 40, 40, 64])
    if random_.random() < 0.5:
        # A token of the text ends the text, so that ends are drafted, rightly and wrongly.
        output = alone(target, prompt_ids, 64).output_ids
        eos_ids = (EOS, output[random_.randrange(len(output))], random_.randrange(270))
        target, draft = tiny_pair(family, likeness=likeness, seed=seed, eos_ids=eos_ids, **over)
    if not early and family == "llama" and not over and random_.random() < 0.2:
        draft = tiny_model(family, seed=seed + 10, max_position_embeddings=len(prompt_ids) + 9)
    if early and random_.random() < 0.3:
        draft = target  # accepts everything, also of the last layers
        early = False
    layers = None
    if early and random_.random() < 0.3:
        layers = random_.sample(range(1, 6), 2)
    probe = measure_probe(
        target, prompt_ids, None if early else draft, limit=limit, max_lookahead=MAX_LOOKAHEAD,
        exit_layers=layers, trace=alone(target, prompt_ids, limit),
    )  # fmt: skip
    return target, None if early else draft, probe


def run_shipped(count: int, seed: int, per_case: int) -> Tally:
    """The same on the shipped models: exit layers of the recipe-trained one, and the distilled draft model."""
    random_ = random.Random(seed)
    target, small = load_model("tiny-layerskip"), load_model("tiny-draft")
    prompts = load_prompts("code", "prefix")
    tally = Tally()
    while tally.combinations < count:
        draft = random_.choice([None, small])
        ids = tuple(encode_prompt(target, random_.choice(prompts).text))
        probe = measure_probe(
            target, ids, draft, limit=48, max_lookahead=MAX_LOOKAHEAD, trace=alone(target, ids, 48),
            exit_layers=None if draft else random_.sample(range(1, 12), 3),
        )  # fmt: skip
        names = ASSISTED if draft else EARLY
        for at in range(per_case):
            compare(target, draft, probe, random_config(random_, names[at % len(names)], probe), tally)
    return tally


def run_combinations(count: int, seed: int, per_case: int) -> Tally:
    """Compare `count` random combinations, `per_case` of them on the same models, prompt and probe."""
    random_ = random.Random(seed)
    tally = Tally()
    while tally.combinations < count:
        target, draft, probe = random_case(random_)
        names = ASSISTED if draft else EARLY
        for at in range(per_case):
            name = "autoregressive" if random_.random() < 0.02 else names[at % len(names)]
            compare(target, draft, probe, random_config(random_, name, probe), tally)
    return tally
