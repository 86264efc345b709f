import numpy as np
import pandas as pd
import pytest

from specviz.figures import exits, oracle, policies, thresholds
from specviz.figures.theme import DARK, LIGHT, Look, table_of
from tests.figures import runs

CURVE = {"threshold": [0.8, 0.0, 0.4], "speed": [30.0, 20.0, 35.0], "waste": [0.1, 0.7, 0.3]}
SPOT = {
    "exit_layer": [1, 2, 3], "acceptance": [0.2, 0.6, 0.7], "draft_cost": [0.1, 0.2, 0.3], "speed": [0.9, 1.4, 1.2],
    "speed_low": [0.8, 1.3, 1.1], "speed_high": [1.0, 1.5, 1.3],
}  # fmt: skip


def named(fig, name):
    (found,) = (part for part in fig.data if part.name == name)
    return found


def test_oracle_distribution_shows_every_prompt_and_how_far_it_reaches():
    rows = [
        {"task": task, "prompt": f"{task}{n}", "lookahead": length}
        for task, lengths in (("code", [[4, 6], [2, 2]]), ("mine", [[0, 1], [1, 0]]))
        for n, values in enumerate(lengths)
        for length in values
    ]
    fig = oracle.oracle_distribution(rows)
    table = table_of(fig)
    assert list(table["mean"]) == [5, 2, 0.5, 0.5] and list(table["longest"]) == [6, 2, 1, 1]
    dots = [part for part in fig.data if part.mode == "markers"]
    assert [sorted(part.x) for part in dots] == [[2, 5], [0.5, 0.5]]
    assert len(set(dots[1].y)) == 2  # equal means stay countable
    reach = named(fig, "code")
    assert list(reach.y) == [1, 1, 0.5, 0.5, 0.25, 0.25]
    assert list(fig.layout.yaxis.ticktext) == ["mine", "code"]
    assert len({part.marker.symbol for part in dots}) == len({named(fig, name).line.dash for name in ("code", "mine")}) == 2


def test_policies_keep_measured_and_published_apart():
    data = policies.forwards_of({"constant": runs.small(), "autoregressive": runs.run("autoregressive")})
    assert list(data["target_forwards"]) == [3, len(runs.PIECES)] and list(data["draft_forwards"]) == [6, 0]
    fig = policies.policy_forwards(data)
    assert [(part.name, part.xaxis, list(part.x)) for part in fig.data] == [
        ("target forwards", "x", [3, len(runs.PIECES)]), ("draft forwards", "x", [6, 0]),
        ("target forwards", "x2", [38, 27]), ("draft forwards", "x2", [192, 129]),
    ]  # fmt: skip
    assert list(fig.data[2].y) == ["static, 5", "oracle"]
    assert "Transformers 4.45" in fig.layout.meta["source"] and "MBPP" in fig.layout.annotations[1].text
    assert list(table_of(fig)["origin"]) == ["measured"] * 2 + ["published"] * 2
    assert len(policies.policy_forwards(data, published=None).data) == 2


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_policy_bars_are_coloured_by_who_works(look):
    fig = policies.policy_forwards([{"policy": "x", "target_forwards": 1, "draft_forwards": 2}], look=look)
    assert fig.data[0].marker.color == look.colour("target")
    assert fig.data[1].marker.pattern.fgcolor == look.colour("draft")


def test_threshold_curve_is_in_order_and_stars_the_fastest():
    fig = thresholds.threshold_curve(CURVE, now=0.25, baselines={"oracle": 50.0})
    assert list(named(fig, "speed").x) == [0.0, 0.4, 0.8] and list(named(fig, "speed").y) == [20, 35, 30]
    best = named(fig, "best at 0.40")
    assert (best.x[0], best.y[0]) == (0.4, 35)
    assert list(named(fig, "refused ÷ drafted").y) == [0.7, 0.3, 0.1] and named(fig, "refused ÷ drafted").yaxis == "y2"
    assert list(named(fig, "oracle 50.0").y) == [50, 50]
    assert [shape.x0 for shape in fig.layout.shapes] == [0.25, 0.25]
    assert named(fig, "in use: 0.25").line.dash == "dash"


def test_threshold_curve_draws_measured_points_on_the_prediction():
    fig = thresholds.threshold_curve({**CURVE, "measured_speed": [29.0, None, 36.0]}, unit="speedup")
    assert named(fig, "predicted").mode == "lines" and named(fig, "measured").mode == "markers"
    values = list(named(fig, "measured").y)
    assert np.isnan(values[0]) and values[1:] == [36, 29]
    assert fig.layout.annotations[0].text.startswith("Speed-up")


def test_sweet_spot_has_three_panels_a_spread_and_points():
    fig = exits.sweet_spot(SPOT, [{"exit_layer": 2, "speed": 1.45}, {"exit_layer": 2, "speed": 1.35}], layers=6, chosen=3)
    panels = {part.yaxis for part in fig.data}
    assert panels == {"y", "y2", "y3"}
    spread = named(fig, "spread")
    assert list(spread.x) == [1, 2, 3, 3, 2, 1] and list(spread.y) == [1.0, 1.5, 1.3, 1.1, 1.3, 0.8]
    assert list(named(fig, "best: 2 (1.40×)").x) == [2]
    speeds = [part for part in fig.data if part.name == "measured" and part.yaxis == "y3"]
    assert list(speeds[0].y) == [1.45, 1.35]
    assert fig.layout.xaxis.range[1] == 5.5  # E goes up to L - 1
    assert list(table_of(fig)["origin"]) == ["predicted"] * 3 + ["measured"] * 2


def test_heat_map_leaves_gaps_where_nobody_looked():
    cells = pd.DataFrame(
        {"exit_layer": [1, 3, 3], "lookahead": [2, 2, 4], "speed": [0.9, 1.6, 1.2], "measured": [False, True, False]}
    )
    fig = exits.heat_map(cells, chosen=(1, 2))
    grid = fig.data[0]
    assert list(grid.x) == [1, 2, 3] and list(grid.y) == [2, 3, 4]
    assert np.array_equal(grid.z, [[0.9, np.nan, 1.6], [np.nan] * 3, [np.nan, np.nan, 1.2]], equal_nan=True)
    best = named(fig, "best: exit layer 3, lookahead 2 (1.60)")
    assert (best.x[0], best.y[0], best.marker.symbol) == (3, 2, "star")
    assert (named(fig, "measured").x[0], named(fig, "measured").y[0]) == (3, 2)
    assert named(fig, "in use: exit layer 1, lookahead 2").marker.symbol != best.marker.symbol


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: thresholds.threshold_curve({"threshold": [1]}), "no column speed, waste"),
        (lambda: thresholds.threshold_curve({**CURVE, "waste": [2, 0, 0]}), "waste holds 2"),
        (lambda: thresholds.threshold_curve({**CURVE, "threshold": [0.4, 0.4, 0.5]}), "threshold=0.4 occurs more than once"),
        (lambda: thresholds.threshold_curve(CURVE, now=7), "now=7"),
        (lambda: exits.sweet_spot({key: SPOT[key] for key in ("exit_layer", "speed")}), "no column acceptance, draft_cost"),
        (lambda: exits.sweet_spot({k: v for k, v in SPOT.items() if k != "speed_low"}), "belong together"),
        (lambda: exits.sweet_spot({**SPOT, "exit_layer": [1, 1, 2]}), "exit_layer=1 occurs more than once"),
        (lambda: exits.heat_map([{"exit_layer": 1, "lookahead": 1}]), "no column speed"),
        (lambda: exits.heat_map([{"exit_layer": 1, "lookahead": 1, "speed": 1}] * 2), "exit_layer=1, lookahead=1 occurs"),
        (lambda: oracle.oracle_distribution([{"task": "a", "prompt": "b", "lookahead": -1}]), "below 0"),
        (lambda: policies.policy_forwards([{"policy": "a", "target_forwards": 1}]), "no column draft_forwards"),
        (lambda: policies.policy_forwards([{"policy": "a", "target_forwards": -1, "draft_forwards": 0}]), "below 0"),
    ],
)
def test_wrong_shapes_fail_before_plotly(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_without_data_the_figure_says_so():
    for draw in (oracle.oracle_distribution, policies.policy_forwards, thresholds.threshold_curve, exits.sweet_spot, exits.heat_map):
        fig = draw([])
        assert fig.layout.height and table_of(fig).empty
        assert fig.layout.annotations[0].text


def test_every_column_of_every_table_has_a_heading_in_every_language():
    figures = [
        oracle.oracle_distribution([{"task": "code", "prompt": "p", "lookahead": 3}]),
        policies.policy_forwards([{"policy": "a", "target_forwards": 1, "draft_forwards": 2}]),
        thresholds.threshold_curve({**CURVE, "measured_speed": [1, 2, 3]}), exits.sweet_spot(SPOT),
        exits.heat_map([{"exit_layer": 1, "lookahead": 1, "speed": 1.0, "measured": True}]),
    ]  # fmt: skip
    from specviz.figures import calibration, iterations, kvq, timeline

    run = runs.small()
    figures += [
        iterations.acceptance_strip(run), iterations.lookahead(run), calibration.confidence_curve(run),
        calibration.calibration([0.5], [True]), timeline.timeline(run), kvq.kvq(run),
    ]  # fmt: skip
    for fig in figures:
        assert len(fig.layout.meta["learn"]) > 40
        for column in table_of(fig).columns:
            assert LIGHT.word(f"column.{column}") and Look(lang="ja").word(f"column.{column}")
