"""Numbers of a run, checked against a run worked out by hand."""

from dataclasses import replace

import pytest

from specviz.analysis.metrics import measure, speedup, to_frame
from specviz.trace import DraftToken, Footer, Header, Iteration, TargetToken, Trace


def hand_made(seconds: float = 2.0) -> Trace:
    """Prompt of 3; drafts 3 (keeps 2) + correction, 2 (keeps 2) + bonus, 0 + bonus, 1 that ends the text."""
    def draft(*texts):
        return tuple(DraftToken(index, text, 0.5) for index, text in enumerate(texts))

    header = Header({"name": "dynamic"}, {"name": "t"}, {"name": "d"}, "p", (1, 2, 3), 20)
    iterations = [
        Iteration(0, 3, draft("a", "b", "x"), "length", 2, TargetToken(9, "c", "correction", 0.7), {"lookahead": 3},
                  0.3, 0.2),
        Iteration(1, 6, draft("d", "e"), "confidence", 2, TargetToken(8, "f", "bonus"), {"lookahead": 3}, 0.2, 0.2),
        Iteration(2, 9, (), "budget", 0, TargetToken(7, "g", "bonus"), {}, 0.0, 0.1),
        Iteration(3, 10, draft("</s>"), "eos", 1, None, {}, 0.1, 0.1),
    ]  # fmt: skip
    return Trace(header, iterations, Footer("eos", 8, 4, 6, 5, seconds, 0.5))


def test_counts_rates_and_times():
    m = measure(hand_made())
    assert (m.tokens, m.iterations, m.drafted, m.accepted, m.wasted) == (8, 4, 6, 5, 1)
    assert (m.corrections, m.bonuses, m.target_forwards, m.draft_forwards) == (1, 2, 4, 6)
    assert m.acceptance_rate == 5 / 6
    assert m.mean_acceptance_length == 2.0 == (m.accepted + m.corrections + m.bonuses) / m.iterations
    assert m.drafted_at == (3, 2, 1)
    assert m.accepted_at == (3, 2, 0)
    assert m.acceptance_by_position == (1.0, 1.0, 0.0)
    assert m.accepted_lengths == (1, 1, 2)
    assert m.stops == {"length": 1, "confidence": 1, "budget": 1, "eos": 1}
    assert m.draft_seconds == pytest.approx(0.6)
    assert m.verify_seconds == pytest.approx(0.6)
    assert m.other_seconds == pytest.approx(0.8)
    assert sum(m.shares.values()) == pytest.approx(1)
    assert m.tokens_per_second == pytest.approx(4.0)
    assert m.as_dict()["shares"]["other"] == pytest.approx(0.4)


def test_an_unfinished_run_has_the_numbers_of_its_iterations():
    m = measure(Trace(hand_made().header, hand_made().iterations[:1]))
    assert (m.tokens, m.drafted, m.seconds) == (3, 3, 0.5)
    assert m.other_seconds is None
    nothing = measure(Trace(hand_made().header))
    assert nothing.acceptance_rate is None
    assert nothing.tokens_per_second is None
    assert nothing.accepted_lengths == ()


def test_drafts_without_a_model_are_no_forwards():
    trace = hand_made()
    trace.header = replace(trace.header, method={"name": "prompt-lookup"})
    assert measure(trace).draft_forwards == 0


def test_speedup_is_a_ratio_of_tokens_per_second():
    assert speedup(hand_made(2.0), hand_made(3.0)) == pytest.approx(1.5)
    assert speedup(hand_made(), Trace(hand_made().header)) is None


def test_tables_hold_every_iteration_and_every_token():
    iterations, tokens = to_frame(hand_made())
    assert list(iterations["accepted"]) == [2, 2, 0, 1]
    assert list(iterations["ending"])[:2] == ["correction", "bonus"]
    assert len(tokens) == 9
    assert list(tokens["fate"])[:4] == ["accepted", "accepted", "refused", "correction"]
    assert list(tokens["position"])[:4] == [3, 4, 5, 5]
    kept = tokens[tokens["fate"] != "refused"]
    assert list(kept["position"]) == list(range(3, 11))
    assert "".join(kept["text"]) == "".join(iterations["text"]) == "abcdefg</s>"
    assert all(len(table) == 0 for table in to_frame(Trace(hand_made().header)))
