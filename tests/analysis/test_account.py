"""Where the time of a run went, on runs worked out by hand."""

from dataclasses import replace

import pytest

from specviz.analysis.account import account
from specviz.analysis.metrics import speedup
from specviz.trace import Footer, Header, Iteration, TargetToken, Trace
from specviz.ui.verdict import why_slow
from tests.analysis.test_metrics import hand_made


def plain(seconds: float = 2.4, tokens: int = 8) -> Trace:
    header = Header({"name": "autoregressive"}, {"name": "t"}, None, "p", (1, 2, 3), 20)
    each = seconds / tokens
    iterations = [
        Iteration(i, 3 + i, (), "budget", 0, TargetToken(9, "c", "bonus"), {}, 0.0, 0.9 * each) for i in range(tokens)
    ]
    return Trace(header, iterations, Footer("limit", tokens, tokens, 0, 0, seconds, 0.5))


def test_costs_are_in_plain_tokens_and_their_sum_explains_the_speed_up():
    spent = account(hand_made(), plain())  # a plain token takes 0.3 s
    assert (spent.drafted, spent.accepted, spent.added) == (1.5, 1.25, 2.0)
    assert spent.drafting == pytest.approx(0.6 / 4 / 0.3) == pytest.approx(spent.verifying)
    assert spent.other == pytest.approx(0.8 / 4 / 0.3)
    assert spent.step == pytest.approx(0.6 / 6 / 0.3)
    assert spent.cost == pytest.approx(2.0 / 4 / 0.3)
    assert spent.speedup == pytest.approx(speedup(hand_made(), plain())) == pytest.approx(1.2)
    assert "added 2.00 tokens (1.25 of 1.50 drafted) and cost 1.67 plain tokens" in spent.sentence()
    assert spent.as_dict()["speedup"] == spent.speedup


def test_the_unit_is_one_plain_token_however_many_there_were():
    assert account(hand_made(), plain(4.8, 16)) == account(hand_made(), plain())
    alone = account(plain(), plain())
    assert (alone.drafted, alone.step) == (0.0, None) and alone.cost == pytest.approx(1.0) == pytest.approx(alone.speedup)


@pytest.mark.parametrize("which", [0, 1])
def test_an_unfinished_run_has_no_account(which):
    runs = [hand_made(), plain()]
    runs[which] = replace(runs[which], footer=None)
    assert account(*runs) is None
    assert account(hand_made(), plain(seconds=0.0)) is None


@pytest.mark.parametrize(
    ("drafted", "accepted", "drafting", "verifying", "reason"),
    [
        (4, 0.4, 0.4, 1.2, "acceptance"),
        (4, 3.0, 4.0, 1.2, "draft"),
        (4, 2.0, 0.8, 2.5, "verify"),
        (4, 2.8, 1.5, 1.4, "draft"),
        (0, 0.0, 0.0, 1.2, "acceptance"),
    ],
)
def test_the_reason_for_a_slow_run_is_what_lost_most(drafted, accepted, drafting, verifying, reason):
    spent = replace(account(hand_made(), plain()), drafted=drafted, accepted=accepted, drafting=drafting, verifying=verifying)
    assert why_slow(spent)["key"] == f"reason.slow.{reason}"
