"""The comparison of a run with the target alone, as the page shows it: catalogue keys and numbers, no sentences."""

from __future__ import annotations

from typing import Any

from specviz.analysis.account import Account, account
from specviz.decoding import check_run
from specviz.trace import Trace


def verdict(trace: Trace, plain: Trace, target, timed: Trace | None = None) -> dict[str, Any]:
    """Same tokens? How much faster, and what made it so?

    timed: the same run once more, whose time counts in place of that of ``trace``. target: who can say whether two different
    tokens nearly tied; None where they are known to be the same.
    """
    check = check_run(trace, target, plain)
    spent = account(timed or trace, plain) if trace.header.method.get("name") != "autoregressive" else None
    out: dict[str, Any] = {
        "kind": "identical" if check.identical else "differs",
        "tokens": check.tokens,
        "plain_tokens": check.plain_tokens,
        "speedup": spent.speedup if spent else check.speedup,
        "watched_speedup": check.speedup if timed else None,
        "plain_seconds": plain.footer.seconds if plain.footer else None,
        "account": spent.as_dict() if spent else None,
        "reasons": [],
    }
    if not check.identical:
        out |= {
            "position": check.position + 1,
            "ours": repr(check.ours[1]) if check.ours else "\u2014",
            "theirs": repr(check.plain[1]) if check.plain else "\u2014",
        }
        if check.near_tie:
            out["reasons"].append({"key": "reason.near_tie", "values": {"gap": f"{check.gap:.2g}"}})
    if spent and spent.speedup < 0.98:
        out["reasons"].append(why_slow(spent))
    return out


def why_slow(spent: Account) -> dict[str, Any]:
    """Of the three ways to lose time, the one that lost most."""
    rate = spent.accepted / spent.drafted if spent.drafted else 0.0
    share = spent.drafting / (spent.drafting + spent.verifying) if spent.drafting + spent.verifying else 0.0
    if share > 0.5 and rate >= 0.5:
        return {"key": "reason.slow.draft", "values": {"share": round(100 * share)}}
    if spent.verifying > 1.5 and rate >= 0.4:
        return {"key": "reason.slow.verify", "values": {"ratio": round(spent.verifying, 1)}}
    if rate >= 0.6:
        return {"key": "reason.slow.draft", "values": {"share": round(100 * share)}}
    return {"key": "reason.slow.acceptance", "values": {"rate": round(100 * rate)}}
