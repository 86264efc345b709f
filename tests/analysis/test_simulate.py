"""Simulated iterations are the logged ones, in every field that they share."""

import pytest

from specviz.analysis.measure import measure_probe
from specviz.analysis.simulate import Policy, simulate
from specviz.decoding import MethodConfig, build, decode
from specviz.errors import UsageError
from specviz.models import zoo
from specviz.models.loading import encode_prompt
from specviz.trace import Trace
from tests.analysis.combos import EARLY, Tally, compare, run_combinations, run_shipped
from tests.analysis.test_probe import small_probe
from tests.tiny import PROMPTS, tiny_pair


def test_simulation_equals_decoding(capsys):
    tally = run_combinations(64, seed=1, per_case=4)
    with capsys.disabled():
        print(f"\n{tally}")
    assert len(tally.ties) <= 1
    assert {"length", "confidence", "eos", "budget", "oracle"} <= set(tally.stops)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_simulation_equals_decoding_over_hundreds_of_combinations(seed, capsys):
    tally = run_combinations(120, seed=seed, per_case=4)
    with capsys.disabled():
        print(f"\n{tally}")
    assert len(tally.ties) <= 2


@pytest.mark.slow
@pytest.mark.skipif(not zoo.MODELS["tiny-layerskip"].here or not zoo.MODELS["tiny-draft"].here,
                    reason="the shipped models are not in assets/models")  # fmt: skip
def test_simulation_equals_decoding_on_the_shipped_models(capsys):
    tally = run_shipped(64, seed=1, per_case=8)
    with capsys.disabled():
        print(f"\n{tally}")
    assert len(tally.ties) <= 2


def test_every_exit_layer_equals_decoding():
    target, _ = tiny_pair("llama")
    ids = encode_prompt(target, PROMPTS[1])
    probe = measure_probe(target, ids, limit=12)
    tally = Tally()
    for layer in range(1, 6):
        for name in EARLY:
            compare(target, None, probe, MethodConfig(name, exit_layer=layer), tally)
    assert tally.combinations == 20
    assert not tally.ties


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_oracle_of_the_probe_is_the_oracle_methods_own(family):
    target, draft = tiny_pair(family)
    ids = encode_prompt(target, PROMPTS[2])
    probe = measure_probe(target, ids, draft, limit=20)
    real = Trace.collect(decode(ids, build(MethodConfig("oracle"), target, draft), 20))
    assert [i.policy["lookahead"] for i in real.iterations] == [
        probe.run[0, i.start - probe.offset] for i in real.iterations
    ]
    assert [i.lookahead for i in simulate(probe, Policy("oracle")).iterations] == [
        i.policy["lookahead"] for i in real.iterations
    ]


def test_lookaheads_that_were_not_probed_are_refused():
    with pytest.raises(UsageError, match="lookahead=4: this probe was measured for up to 3"):
        simulate(small_probe(), Policy("dynamic", 4, 0.1), 1)
    assert simulate(small_probe(), Policy("oracle", 99), 1).iterations


def test_a_hand_worked_run():
    probe = small_probe()  # output 5 6 7 2(end); layer 2 drafts 5 6 9 2 and behind the wrong 9: 4 2
    simulated = simulate(probe, Policy("constant", 3), 2).iterations
    assert [(i.start, i.drafted, i.accepted, i.stop, i.ending) for i in simulated] == [
        (2, 3, 2, "length", "correction"),
        (5, 1, 1, "eos", None),
    ]
    low = simulate(probe, Policy("dynamic", 3, 0.6), 2).iterations
    assert [(i.start, i.drafted, i.accepted, i.stop, i.ending) for i in low] == [
        (2, 1, 1, "confidence", "bonus"),
        (4, 1, 0, "confidence", "correction"),
        (5, 1, 1, "eos", None),
    ]


def test_inexact_only_where_the_heuristic_grew_beyond_the_probe():
    probe = small_probe()
    assert simulate(probe, Policy("heuristic", 3), 1).exact
    assert Policy.of(MethodConfig("early-exit-dynamic", lookahead=7, threshold=0.5)) == Policy("dynamic", 7, 0.5)
    with pytest.raises(UsageError, match="does not draft with a model"):
        Policy.of(MethodConfig("prompt-lookup"))
