import pytest

from specviz.analysis.metrics import measure
from specviz.figures import calibration, iterations, kvq, timeline
from specviz.figures.theme import DARK, LIGHT, Look, table_of
from specviz.trace import Trace
from tests.figures import runs


@pytest.fixture(scope="module")
def trace():
    return runs.small()


def named(fig, name):
    (found,) = (part for part in fig.data if part.name == name)
    return found


def test_strip_puts_what_a_forward_brought_below_and_waste_above(trace):
    fig = iterations.acceptance_strip(trace)
    assert [part.name for part in fig.data] == ["accepted", "correction", "bonus", "refused", "mean 2.33"]
    assert (list(named(fig, "accepted").x), list(named(fig, "accepted").base)) == ([1, 1, 2, 2], [0, 1, 0, 1])
    assert (list(named(fig, "correction").x), list(named(fig, "correction").base)) == ([1, 3], [2, 0])
    assert (list(named(fig, "bonus").x), list(named(fig, "bonus").base)) == ([2], [2])
    assert (list(named(fig, "refused").x), list(named(fig, "refused").base)) == ([1, 3], [3, 1])
    assert list(fig.data[-1].y) == [pytest.approx(measure(trace).mean_acceptance_length)] * 2


def test_strip_shows_tokens_visibly_and_obeys_none(trace):
    fig = iterations.acceptance_strip(trace)
    assert "·a" in named(fig, "accepted").hovertext[0]
    assert "⏎" in named(fig, "accepted").hovertext[1]
    assert "&lt;b&gt;" in named(fig, "refused").hovertext[0]
    assert "⟨RLM⟩" in named(fig, "correction").hovertext[1]
    assert list(table_of(fig)["text"][:4]) == ["·a", "⏎", "·c", "<b>"]


def test_strip_table_counts_what_the_metrics_count():
    long = runs.run()
    numbers, table = measure(long), iterations.strip_table(long)
    counts = table["outcome"].value_counts()
    assert counts["accepted"] == numbers.accepted and counts["refused"] == numbers.wasted
    assert counts["correction"] == numbers.corrections and counts["bonus"] == numbers.bonuses
    # Nothing stands on anything else: the places of an iteration are 1, 2, 3, …
    for _, part in table.groupby("iteration"):
        assert list(part["place"]) == list(range(1, len(part) + 1))


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_colour_and_mark_of_an_outcome_are_those_of_the_table(trace, look):
    fig = iterations.acceptance_strip(trace, look)
    assert named(fig, "accepted").marker.color == look.colour("accepted")
    assert named(fig, "refused").marker.pattern.fgcolor == look.colour("refused")
    shapes = {part.marker.pattern.shape for part in fig.data if part.type == "bar"}
    assert len(shapes) == 4  # told apart without colour
    assert fig.layout.template.layout.paper_bgcolor == look.colour("surface")


def test_lookahead_has_three_marks_an_iteration(trace):
    fig = iterations.lookahead(trace, [4, 2, 0])
    assert list(named(fig, "drafted").y) == [3, 2, 1]
    assert list(named(fig, "accepted").y) == [2, 2, 0]
    assert list(named(fig, "oracle").y) == [4, 2, 0]
    assert list(named(fig, "drafted").customdata) == [0, 1, 2]
    assert [part.name for part in iterations.lookahead(trace).data] == ["drafted", "accepted"]
    assert list(table_of(fig).loc[0]) == [1, 2, 3, 2, 4, "length"]


def test_oracle_of_a_run_comes_from_the_probe_of_its_output():
    probe, run = runs.probe(), runs.run("constant", 4, 6)
    lengths = iterations.oracle_lookahead(run, probe, 4)
    for step, length in zip(run.iterations, lengths, strict=True):
        assert step.accepted == min(step.drafted, length)
    with pytest.raises(ValueError, match="the probe holds"):
        iterations.oracle_lookahead(runs.small(), probe, 4)


def test_wrong_lengths_fail_before_plotly(trace):
    with pytest.raises(ValueError, match="3 iterations, 2 oracle"):
        iterations.lookahead(trace, [1, 2])
    with pytest.raises(ValueError, match="oracle -1 in iteration 1"):
        iterations.lookahead(trace, [1, -1, 0])


def test_nothing_yet_is_a_figure_of_the_same_height(trace):
    nothing = Trace(trace.header)
    for draw in (iterations.acceptance_strip, iterations.lookahead, calibration.confidence_curve, timeline.timeline, kvq.kvq):
        fig = draw(nothing)
        assert fig.layout.height == draw(trace).layout.height
        assert fig.layout.title.text == draw(trace).layout.title.text
        assert table_of(fig).empty


def test_calibration_counts_only_what_the_target_judged(trace):
    confidence, accepted = calibration.judged([trace, trace])
    assert list(confidence[:6]) == [0.9, 0.8, 0.7, 0.6, 0.3, 0.2]
    assert list(accepted[:6]) == [True, True, False, True, True, False]
    assert len(confidence) == 12


def test_calibration_bins():
    table = calibration.calibration_table([0.05, 0.95, 0.91, 1.0, 0.5], [False, True, True, False, True])
    assert list(table["tokens"]) == [1, 1, 3]
    assert list(table["accepted"]) == [0, 1, 2]
    assert table["rate"].tolist() == pytest.approx([0, 1, 2 / 3])
    assert ((table["low"] <= table["rate"]) & (table["rate"] <= table["high"])).all()
    # Wilson by hand for 2 of 3: (2/3 + z²/6 ± …) / (1 + z²/3)
    assert table["low"].iloc[-1] == pytest.approx(0.2077, abs=1e-3)
    assert table["high"].iloc[-1] == pytest.approx(0.9385, abs=1e-3)


def test_calibration_figure_shows_rates_counts_and_the_threshold():
    fig = calibration.calibration([0.2, 0.9, 0.95], [False, True, True], threshold=0.4)
    share = named(fig, "share accepted")
    assert [(n, float(y)) for n, y in enumerate(share.y) if y == y] == [(2, 0), (9, 1)]  # a bin without tokens is a gap
    assert share.connectgaps is False and "1 / 1" not in share.hovertext[2] and "2 / 2" in share.hovertext[9]
    assert list(named(fig, "accepted").y) == [0, 2] and list(named(fig, "refused").y) == [1, 0]
    assert list(named(fig, "threshold 0.4").x) == [0.4, 0.4]
    assert calibration.calibration([], []).layout.height == fig.layout.height


@pytest.mark.parametrize(
    ("confidence", "accepted", "more", "message"),
    [
        ([0.5], [], {}, "1 confidence, 0 accepted"),
        ([1.5], [True], {}, "holds 1.5"),
        ([float("nan")], [True], {}, "missing"),
        ([0.5], [True], {"bins": 1}, "2 or more"),
        ([0.5], [True], {"threshold": 2}, "threshold=2"),
    ],
)
def test_calibration_refuses_what_is_no_confidence(confidence, accepted, more, message):
    with pytest.raises(ValueError, match=message):
        calibration.calibration(confidence, accepted, **more)


def test_confidence_curve_in_drafting_order_with_the_runs_own_threshold(trace):
    fig = calibration.confidence_curve(trace)
    assert list(named(fig, "accepted").x) == [0, 1, 3, 4]
    assert list(named(fig, "refused").x) == [2, 5]
    assert list(named(fig, "threshold 0.4").y) == [0.4, 0.4]
    longer = table_of(calibration.confidence_curve(runs.run("constant", 4, 6)))
    # Behind a refusal nothing is judged.
    for _, part in longer.groupby("iteration"):
        outcomes = list(part["outcome"])
        assert outcomes == sorted(outcomes, key=["accepted", "refused", "behind"].index)
        assert outcomes.count("refused") <= 1


def test_timeline_is_one_clock_without_gaps_and_knows_the_rest(trace):
    table = timeline.timeline_table(trace)
    assert table["start_ms"].tolist()[1:] == pytest.approx((table["start_ms"] + table["ms"]).tolist()[:-1])
    by = table.groupby("work")["ms"].sum()
    assert by["draft"] == pytest.approx(6) and by["target"] == pytest.approx(6) and by["other"] == pytest.approx(3)
    fig = timeline.timeline(trace)
    assert [part.name for part in fig.data] == ["draft 40%", "verify 40%", "other 20%", "this run"]
    curve = named(fig, "this run")
    assert list(curve.y) == [0, 3, 6, 7] and curve.line.shape == "hv"
    assert list(curve.x) == pytest.approx([0, 5, 10, 14])


def test_timeline_with_the_target_alone_beside_it(trace):
    plain = runs.run("autoregressive")
    fig = timeline.timeline(trace, plain)
    alone = named(fig, "target alone")
    assert alone.y[-1] == len(plain.iterations) and alone.line.dash == "dash"
    assert fig.layout.xaxis.range[1] >= alone.x[-1]


def test_kvq_computes_each_layer_of_a_position_once(trace):
    table = kvq.layer_work_table(trace)
    assert len(table) == 2 * sum(step.drafted + 1 for step in trace.iterations)
    first = table[table["iteration"] == 1]
    assert list(first["text"]) == ["i", "i", "·a", "·a", "⏎", "⏎", "<b>", "<b>"]
    assert list(first["position"]) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert list(first["layers"][:2]) == ["0..1", "2..5"]
    assert list(first["fate"]) == ["kept"] * 6 + ["thrown"] * 2
    assert list(table[table["iteration"] == 2]["text"][:2]) == ["·c", "·c"]  # the correction is read next


def test_kvq_figure_and_its_arithmetic(trace):
    fig = kvq.kvq(trace)
    assert {part.name: len(part.x) for part in fig.data} == {
        "drafted, reused": 7, "drafted, dropped": 2, "verified, kept": 7, "verified, dropped": 2,
    }  # fmt: skip
    assert set(named(fig, "drafted, reused").y) == {2} and named(fig, "verified, kept").base == 2
    assert kvq.layer_work(trace) == {"shared": 9 * 6, "separate": 9 * 6 + 6 * 2, "thrown": 12}
    assert "54" in fig.layout.meta["learn"]


def test_kvq_of_a_run_without_early_exit_has_only_the_target():
    run = runs.run("dynamic", exit_layer=None)
    fig = kvq.kvq(run)
    assert {part.name for part in fig.data} <= {"verified, kept", "verified, dropped"}
    work = kvq.layer_work(run)
    assert work["shared"] == work["separate"]


def test_kvq_needs_to_know_the_layers(trace):
    import dataclasses

    for method, target, message in (({}, {}, "how many layers"), ({"exit_layer": 6}, {"layers": 6}, "exit_layer=6")):
        header = dataclasses.replace(trace.header, method=method, target=target)
        with pytest.raises(ValueError, match=message):
            kvq.kvq(Trace(header, trace.iterations))
    with pytest.raises(ValueError, match="first=9"):
        kvq.kvq(trace, first=9)


def test_japanese_figures_hold_the_same_numbers(trace):
    for draw in (iterations.acceptance_strip, iterations.lookahead, timeline.timeline, kvq.kvq, calibration.confidence_curve):
        english, japanese = draw(trace), draw(trace, look=Look(lang="ja"))
        assert table_of(english).equals(table_of(japanese))
        assert english.layout.title.text != japanese.layout.title.text
        for one, other in zip(english.data, japanese.data, strict=True):
            assert one.name is None or one.name != other.name
