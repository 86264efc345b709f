"""Predictions add up the measured parts, by hand and over grids, and the textbook formula is the textbook's."""

import dataclasses

import pytest

from specviz.analysis.as_trace import as_trace
from specviz.analysis.cost import (
    Costs,
    best,
    expected_tokens,
    grid_seconds,
    iteration_seconds,
    load_costs,
    predict,
    save_costs,
    textbook_lookahead,
    textbook_speedup,
)
from specviz.analysis.grid import simulate_grid
from specviz.analysis.metrics import measure
from specviz.analysis.simulate import Policy, simulate
from specviz.analysis.timing import measure_costs
from specviz.errors import UsageError
from tests.analysis.test_grid import random_probe
from tests.tiny import tiny_pair


def flat(value: float) -> tuple[float, float, float]:
    return (value, value * 0.9, value * 1.2)


def known_costs(**over) -> Costs:
    """4 layers of 10 ms to draft, 10 to 12 to verify 1 to 4 tokens with 6 more; draft steps 8 and 1 more at first."""
    parts = {
        "target": "t", "draft": "d", "device": "cpu", "threads": 1, "stream": "split", "context": 10,
        "sizes": (1, 2, 4), "layers": 4, "full": (flat(46e-3), flat(50e-3), flat(58e-3)),
        "verify_layer": (flat(10e-3), flat(11e-3), flat(12e-3)), "verify_rest": (flat(6e-3),) * 3,
        "draft_layer": flat(10e-3), "draft_rest": flat(7e-3), "draft_once": flat(2e-3),
        "step": flat(8e-3), "first": flat(0.5e-3), "behind_full": flat(1e-3),
        "iteration": flat(1e-3), "token": flat(0.1e-3), "repetitions": 3,
    }  # fmt: skip
    return Costs(**{**parts, **over})


def test_parts_add_up_by_hand():
    costs = known_costs()
    assert costs.plain_token() == pytest.approx(47e-3)
    assert costs.verify(3) == pytest.approx(54e-3)
    assert costs.verify(8) == pytest.approx(74e-3)  # on with the slope of the last part
    assert costs.drafting(None, 3) == pytest.approx(24.5e-3)
    assert costs.drafting(None, 3, behind_full=1) == pytest.approx(25.5e-3)
    assert costs.drafting(None, 0, behind_full=1) == 0
    # exit 2: three passes of two layers for two drafts, two choices, and what is paid once
    assert costs.drafting(2, 2) == pytest.approx(3 * 20e-3 + 2 * 7e-3 + 2e-3)
    assert costs.drafting(2, 0) == pytest.approx(22e-3)
    assert costs.verifying(1, 1) == pytest.approx(3 * 11e-3 + 6e-3)
    assert costs.verifying(1, 2) == pytest.approx(3 * 11.5e-3 + 6e-3)
    assert costs.cost_ratio(1) == pytest.approx(17 / 46)
    assert costs.cost_ratio(None) == pytest.approx(8 / 46)


@pytest.mark.parametrize("early", [True, False])
def test_grids_runs_and_traces_are_priced_alike(early):
    probe = random_probe(5)
    if not early:
        probe = dataclasses.replace(
            probe, kind="assistant", draft="d", rows=(0,), draft_ids=probe.draft_ids[:1],
            confidence=probe.confidence[:1], margin=probe.margin[:1], wrong_index=probe.wrong_index[:1],
        )  # fmt: skip
    costs = known_costs()
    for policy in ("constant", "dynamic", "heuristic", "oracle"):
        grid = simulate_grid(probe, policy, lookaheads=(1, 4, 8), thresholds=(0.0, 0.5))
        seconds = grid_seconds(costs, grid, early)
        for r, row in enumerate(grid.rows):
            for t, threshold in enumerate(grid.thresholds):
                for k, lookahead in enumerate(grid.lookaheads):
                    layer = row if early else None
                    alone = simulate(probe, Policy(policy, lookahead, threshold), layer)
                    said = predict(costs, alone, layer)
                    assert said.seconds == pytest.approx(seconds[r, t, k])
                    assert said.low == pytest.approx(0.9 * said.seconds)
                    assert said.high == pytest.approx(1.2 * said.seconds)
                    assert said.tokens_per_second == pytest.approx(probe.length / said.seconds)
    trace = as_trace(probe, alone, iteration_seconds(costs, alone, layer))
    numbers = measure(trace)
    assert numbers.draft_seconds == pytest.approx(said.draft_seconds)
    assert numbers.verify_seconds == pytest.approx(said.verify_seconds)


def test_plain_decoding_has_speedup_one():
    probe = random_probe(2)
    said = predict(known_costs(), simulate(probe, Policy("autoregressive")))
    assert said.speedup == pytest.approx(1)
    assert said.draft_seconds == 0


def test_the_best_cell_is_the_fastest_of_all():
    probe, costs = random_probe(7, rate=0.9), known_costs()
    found = best(costs, probe, "dynamic")
    speeds = [
        predict(costs, simulate(probe, Policy("dynamic", k, t), e), e).speedup
        for e in probe.rows for k in (1, 4, 8) for t in (0.0, 0.25, 0.5)
    ]  # fmt: skip
    assert found.speedup >= max(speeds) - 1e-9
    again = predict(costs, simulate(probe, Policy("dynamic", found.lookahead, found.threshold), found.exit_layer), found.exit_layer)
    assert again.speedup == pytest.approx(found.speedup)


def test_the_textbook_formula():
    assert expected_tokens(0.5, 1) == pytest.approx(1.5)
    assert expected_tokens(0.8, 3) == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert expected_tokens(1.0, 4) == 5
    assert expected_tokens(0.0, 4) == 1
    assert textbook_speedup(0.8, 5, 0.05) == pytest.approx((1 - 0.8**6) / (0.2 * 1.25))
    assert textbook_lookahead(0.8, 0.0, 16) == 16
    assert textbook_lookahead(0.3, 0.5) == 0


def test_the_formula_is_what_simulation_gives_for_independent_drafts():
    """Matches that are independent of each other and flat verification: the formula's assumptions, so its result."""
    probe = random_probe(11, n=4000, rate=0.7)
    alpha = probe.match.mean(axis=1)
    for row, layer in enumerate(probe.rows):
        for lookahead in (1, 3, 6):
            made = simulate(probe, Policy("constant", lookahead), layer)
            tokens = made.tokens / len(made.iterations)
            assert tokens == pytest.approx(expected_tokens(alpha[row], lookahead), rel=0.04)


def test_costs_save_and_load(tmp_path):
    path = tmp_path / "costs.json"
    save_costs(path, known_costs())
    assert load_costs(path) == known_costs()
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(UsageError, match="not a file of measured costs"):
        load_costs(tmp_path / "other.json")
    with pytest.raises(UsageError, match="No such file"):
        load_costs(tmp_path / "none.json")


def test_costs_are_measured_for_every_part():
    target, draft = tiny_pair("llama")
    costs = measure_costs(target, draft, context=20, sizes=(1, 2, 4), repetitions=3)
    assert costs.sizes == (1, 2, 4)
    assert costs.layers == 6
    for name in ("full", "verify_layer", "verify_rest"):
        assert len(getattr(costs, name)) == 3
    positive = (*costs.full, *costs.verify_layer, costs.draft_layer, costs.head, costs.step, costs.iteration)
    for timing in positive:
        assert 0 < timing[1] <= timing[0] <= timing[2]
    for timing in (*costs.verify_rest, costs.draft_rest, costs.draft_once, costs.first, costs.behind_full, costs.token):
        assert 0 <= timing[1] <= timing[0] <= timing[2]
    assert costs.draft_forward(5) > costs.draft_forward(1) > 0


def test_layers_that_cannot_be_run_apart_leave_the_two_model_costs():
    target, draft = tiny_pair("t5")
    costs = measure_costs(target, draft, context=8, sizes=(1, 2), repetitions=3)
    assert costs.verify_layer is None
    assert costs.drafting(None, 2) > 0
    with pytest.raises(UsageError, match="were not measured apart"):
        costs.draft_forward(2)
    with pytest.raises(UsageError, match="without a draft model"):
        dataclasses.replace(costs, step=None).drafting(None, 2)
