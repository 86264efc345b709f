import numpy as np
import pytest

from specviz.analysis.cost import best, predict
from specviz.analysis.simulate import Policy, simulate
from specviz.figures import exits, from_probe, oracle, policies, thresholds
from specviz.figures.theme import table_of
from tests.figures import runs


@pytest.fixture(scope="module")
def probe():
    return runs.probe()


@pytest.fixture(scope="module")
def costs():
    return runs.costs()


def test_threshold_frame_is_what_single_simulations_say(probe, costs):
    frame = from_probe.threshold_frame(probe, costs, 4, lookahead=12, thresholds=[0.0, 0.3, 0.6])
    for row in frame.to_dict("records"):
        run = simulate(probe, Policy("dynamic", 12, row["threshold"]), 4)
        assert row["speed"] == pytest.approx(predict(costs, run, 4).tokens_per_second)
        assert row["waste"] == pytest.approx(1 - run.accepted / run.drafted)
    assert len(table_of(thresholds.threshold_curve(frame))) == 3


def test_heat_map_and_sweet_spot_agree_with_the_best_cell(probe, costs):
    cells = from_probe.heat_map_frame(probe, costs, lookaheads=range(1, 9))
    assert len(cells) == 11 * 8
    top = cells.loc[cells["speed"].idxmax()]
    wanted = best(costs, probe, "constant", lookaheads=range(1, 9))
    assert (top["exit_layer"], top["lookahead"]) == (wanted.exit_layer, wanted.lookahead)
    assert top["speed"] == pytest.approx(wanted.speedup)
    spot = from_probe.sweet_spot_frame(probe, costs, lookaheads=range(1, 9))
    assert spot["speed"].max() == pytest.approx(wanted.speedup)
    assert ((spot["speed_low"] < spot["speed"]) & (spot["speed"] < spot["speed_high"])).all()
    assert np.all(np.diff(spot["draft_cost"]) > 0)
    exits.heat_map(cells)
    exits.sweet_spot(spot)


def test_a_draft_model_has_policies_and_thresholds_but_no_exit_layers(costs):
    probe = runs.probe(exit_layers=False)
    frame = from_probe.policy_frame(probe, costs=costs)
    bound = frame.set_index("policy")
    assert bound.loc["oracle", "target_forwards"] == bound["target_forwards"].min()
    assert bound.loc["constant", "draft_forwards"] == simulate(probe, Policy("constant", 5)).drafted
    policies.policy_forwards(frame)
    thresholds.threshold_curve(from_probe.threshold_frame(probe, costs))
    with pytest.raises(ValueError, match="not exit layers"):
        from_probe.heat_map_frame(probe, costs)


def test_oracle_frame_has_one_row_an_iteration_of_the_oracle(probe):
    frame = from_probe.oracle_frame({"code": [("a", probe)], "open-ended": [("b", runs.probe(seed=1))]}, 4)
    run = simulate(probe, Policy("oracle"), 4)
    assert list(frame.loc[frame["prompt"] == "a", "lookahead"]) == [step.drafted for step in run.iterations]
    oracle.oracle_distribution(frame)
