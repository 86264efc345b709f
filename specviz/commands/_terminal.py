"""A run in the terminal: the text as it comes, each token marked as what became of it."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from specviz.trace import Header, Iteration, Record, Trace

# What became of a token -> (colour, mark before, mark behind). The colours repeat what the marks say, and marks are
# shown wherever colours are not.
STYLES = {
    "accepted": ("\x1b[32m", "[", "]"),
    "refused": ("\x1b[9;31m", "{-", "-}"),
    "correction": ("\x1b[1;4;33m", "", ""),
    "bonus": ("\x1b[1;4;36m", "", ""),
}
_RESET = "\x1b[0m"
_DIM = "\x1b[2m"

LEGEND = (
    ("accepted", "drafted and accepted"),
    ("refused", "drafted and refused"),
    ("correction", "the target's own"),
    ("bonus", "the target's own after a full acceptance"),
)


def wants_colour(stream: TextIO) -> bool:
    """Colour on a terminal, unless NO_COLOR says otherwise (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def printable(text: str) -> str:
    """Text without what would steer a terminal: control characters other than line break and tab become signs."""
    out = []
    for char in text:
        code = ord(char)
        if char in "\n\t" or (code >= 32 and not 127 <= code < 160 and code not in _DIRECTIONS):
            out.append(char)
        else:
            out.append(chr(0x2400 + code) if code < 32 else f"\\u{code:04x}")
    return "".join(out)


_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x2028, 0x2029}


class StripPrinter:
    """Prints records as they come. ``mark`` shows the marks; by default exactly where there is no colour."""

    def __init__(self, stream: TextIO | None = None, colour: bool | None = None):
        self._stream = stream or sys.stdout
        self._colour = wants_colour(self._stream) if colour is None else colour
        # A stream that cannot write a character shows a replacement instead of failing in mid-run.
        if hasattr(self._stream, "reconfigure"):
            self._stream.reconfigure(errors="replace")

    def show(self, record: Record) -> None:
        if isinstance(record, Header):
            self._write(self._legend() + "\n\n" + self._dim(printable(record.prompt)) + "\n\n")
        elif isinstance(record, Iteration):
            for index, token in enumerate(record.draft):
                self._token(token.text, "accepted" if index < record.accepted else "refused")
            if record.ending is not None:
                self._token(record.ending.text, record.ending.kind)
        else:
            self._write(printable(record.tail) + "\n")

    def _token(self, text: str, kind: str) -> None:
        if text:
            self._write(self._styled(text, kind))

    def _styled(self, text: str, kind: str) -> str:
        colour, before, behind = STYLES[kind]
        text = printable(text)
        if kind == "refused":
            text = text.replace("\n", "\u23ce")  # a line that is not in the output must not break it
        if not self._colour:
            return before + text + behind
        # A colour that spans a line break would tint the rest of the line on some terminals.
        return "\n".join(colour + part + _RESET if part else "" for part in text.split("\n"))

    def _legend(self) -> str:
        if self._colour:
            return "  ".join(self._styled(words, kind) for kind, words in LEGEND)
        return "[accepted] {-refused-} the target's own"

    def _dim(self, text: str) -> str:
        return _DIM + text + _RESET if self._colour else text

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def table(rows: list[tuple[str, str]]) -> str:
    """Name and value in two columns."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def summary_rows(trace: Trace) -> list[tuple[str, str]]:
    """The short table under a run: counts, rates, seconds."""
    from specviz.analysis.metrics import measure

    numbers = measure(trace)
    target = trace.header.target.get("name", "?")
    draft = (trace.header.draft or {}).get("name")
    parameters = ", ".join(f"{k} {v:g}" for k, v in trace.header.method.items() if isinstance(v, (int, float)))
    rate = "nothing was drafted"
    if numbers.drafted:
        rate = f"{numbers.acceptance_rate:.1%} ({numbers.accepted} of {numbers.drafted})"
    return [
        ("method", f"{trace.header.method.get('name', '?')}" + (f" ({parameters})" if parameters else "")),
        ("models", f"{target}" + (f", draft {draft}" if draft else "")),
        ("tokens", f"{numbers.tokens}" + (f", ended by {trace.footer.end}" if trace.footer else ", unfinished")),
        ("iterations", f"{numbers.iterations}"),
        ("drafted", f"{numbers.drafted}"),
        ("accepted", f"{numbers.accepted}"),
        ("acceptance rate", rate),
        ("mean acceptance length", f"{numbers.mean_acceptance_length:.2f} tokens per target forward"),
        ("drafting", f"{numbers.draft_seconds:.3f} s"),
        ("verifying", f"{numbers.verify_seconds:.3f} s"),
        ("tokens per second", f"{numbers.tokens_per_second:.1f}" if numbers.tokens_per_second else "not known"),
    ]
