"""Traces made by hand: for what a page must show without any model, and for texts that no model would write."""

from __future__ import annotations

import random

from specviz.trace import Alternative, DraftToken, Footer, Header, Iteration, TargetToken, Trace

WORDS = (
    "The", " sky", " is", " blue", " because", " air", " scatters", " short", " waves", " of", " light", " more",
    " than", " long", " ones", ".", "\n", " So", " we", " see",
)  # fmt: skip

# What a page must show as text and never obey.
HOSTILE = (
    "${7*7}",
    "`${alert(1)}`",
    "<img src=x onerror=\"window.hacked=1\">",
    "<script>window.hacked=1</script>",
    "{{constructor.constructor('window.hacked=1')()}}",
    "\u202eright to left\u202c",
    "nul\u0000byte",
    "%{x} $x^2$ <b>bold</b>",
    "'\"&amp;--></style>",
    "\u200b\u2066hidden\u2069",
)


def trace(words=WORDS, iterations: int = 24, seed: int = 0, method: str = "dynamic", prompt: str = "Why?") -> Trace:
    """A run that looks like a real one: confidences that tell something, refusals, corrections, bonuses."""
    rng = random.Random(seed)
    position, made = 4, []
    for index in range(iterations):
        drafted = rng.randint(1, 6)
        accepted = rng.choice([drafted, rng.randint(0, drafted)])
        draft = []
        for j in range(drafted):
            word = words[(index * 7 + j) % len(words)]
            confidence = round(rng.uniform(0.5, 1.0) if j < accepted else rng.uniform(0.1, 0.7), 4)
            rest = (1 - confidence) / 2
            draft.append(
                DraftToken(
                    100 + j, word, confidence, 0.4,
                    (Alternative(100 + j, word, confidence), Alternative(9, " other", round(rest, 4))),
                    round(rng.uniform(0.4, 1) if j < accepted else rng.uniform(0, 0.3), 4),
                )
            )  # fmt: skip
        word = words[(index * 11 + 3) % len(words)]
        kind = "bonus" if accepted == drafted else "correction"
        ending = TargetToken(7, word, kind, 0.8, (Alternative(7, word, 0.8), Alternative(9, " other", 0.1)))
        made.append(
            Iteration(
                index, position, tuple(draft), rng.choice(["length", "confidence"]), accepted, ending,
                {"lookahead": 8, "threshold": 0.4}, 0.004 * drafted, 0.02,
            )
        )  # fmt: skip
        position += accepted + 1
    header = Header(
        {"name": method, "lookahead": 8, "threshold": 0.4},
        {"name": "big-model", "revision": None, "dtype": "float32", "device": "cpu", "layers": 12},
        {"name": "small-model", "revision": None, "dtype": "float32", "device": "cpu", "layers": 2},
        prompt, (1, 2, 3, 4), 200, {"temperature": 0.0},
    )  # fmt: skip
    totals = [sum(it.drafted for it in made), sum(it.accepted for it in made)]
    spent = sum(it.draft_seconds + it.verify_seconds for it in made)
    return Trace(header, made, Footer("limit", position - 4, iterations, *totals, spent * 1.02, 0.03))
