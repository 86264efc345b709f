"""Ratios, refusals and tables, from rows made by hand."""

from __future__ import annotations

from specviz.bench.measure import Row
from specviz.bench.report import lines, pairings, ratio, table


def row(engine, family, method, prompt, turn, seconds, digest="same", tokens=10, **more):
    return Row(engine, family, method, prompt, turn, tokens, seconds, digest, **more)


ROWS = [
    row(name, family, method, prompt, turn, seconds * (1 + 0.1 * turn), **more)
    for name, family, method, seconds, more in (
        ("generate", "transformers", "autoregressive", 4.0, {}),
        ("ours plain", "ours", "autoregressive", 2.0, {"iterations": 10, "drafted": 0, "accepted": 0}),
        ("theirs exit", "transformers", "early-exit", 6.0, {}),
        ("ours exit", "ours", "early-exit", 1.0, {"iterations": 4, "drafted": 12, "accepted": 6}),
    )
    for prompt in ("a", "b")
    for turn in range(3)
]


def test_a_ratio_compares_runs_of_the_same_prompt_and_repetition():
    found = ratio(ROWS, "ours exit", "generate")
    assert abs(found.value - 4.0) < 1e-9 and abs(found.low - 4.0) < 1e-9  # the repetitions' drift cancels out
    assert ratio(ROWS, "ours exit", "nobody") is None


def test_the_interval_holds_the_value_and_shows_the_spread():
    noisy = [
        row("x", "ours", "m", "p", turn, 1.0) for turn in range(7)
    ] + [row("y", "transformers", "m", "p", turn, 2.0 + 0.2 * (turn - 3)) for turn in range(7)]
    found = ratio(noisy, "x", "y")
    assert found.low <= found.value <= found.high and found.high - found.low > 0.1
    assert found == ratio(noisy, "x", "y")  # the same rows give the same interval


def test_lines_give_milliseconds_acceptance_and_tokens_per_forward():
    found = {line.engine: line for line in lines(ROWS, "generate")}
    assert abs(found["generate"].ms - 440.0) < 1e-6
    assert found["ours exit"].acceptance == 0.5 and found["ours exit"].per_forward == 2.5
    assert found["ours plain"].acceptance is None
    assert found["ours exit"].tokens == 60 and found["ours exit"].runs == 6


def test_an_engine_with_another_output_is_refused_and_has_no_ratio():
    wrong = [*ROWS, row("fast and wrong", "economize", "early-exit", "a", 0, 0.1, digest="other")]
    line = next(line for line in lines(wrong, "generate") if line.engine == "fast and wrong")
    assert line.against is None and "another output" in line.refused
    assert "refused" in table([line], "generate")


def test_an_engine_that_could_not_run_says_why():
    broken = [*ROWS, row("broken", "transformers", "early-exit", "a", 0, 0.0, "", 0, fault="IndexError: index 3")]
    line = next(line for line in lines(broken, "generate") if line.engine == "broken")
    assert line.refused == "IndexError: index 3"


def test_pairings_set_each_method_against_its_peers_and_against_our_own_plain_decoding():
    found = {(mine, other): result.value for mine, other, result in pairings(ROWS)}
    assert set(found) == {("ours plain", "generate"), ("ours exit", "theirs exit"), ("ours exit", "ours plain")}
    assert abs(found["ours exit", "theirs exit"] - 6.0) < 1e-9


def test_the_table_is_one_line_an_engine():
    text = table(lines(ROWS, "generate"), "generate")
    assert len(text.splitlines()) == 5 and "4.00 (4.00..4.00)" in text
