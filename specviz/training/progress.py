"""A progress bar for the terminal; into a file, a line every half minute."""

from __future__ import annotations

import sys
import time

WIDTH = 24


class Progress:
    """Counts tokens, or what else ``unit`` says, towards ``total``; shows speed and time left on stderr."""

    def __init__(self, total: int, done: int = 0, quiet: bool = False, unit: str = "tokens") -> None:
        self.total, self.done, self.quiet, self.unit = total, done, quiet, unit
        self.began_at, self.began_with = time.monotonic(), done
        self.terminal = sys.stderr.isatty()
        self.shown = 0.0

    def update(self, count: int, loss=None, note: str = "") -> None:
        """Count ``count`` more; ``loss`` is turned into a number only when it is shown. note: said in its place."""
        self.done += count
        now = time.monotonic()
        if self.quiet or (now - self.shown < (0.5 if self.terminal else 30.0) and self.done < self.total):
            return
        self.shown = now
        pace = (self.done - self.began_with) / max(now - self.began_at, 1e-9)
        left = (self.total - self.done) / max(pace, 1e-9)
        share = min(1.0, self.done / self.total)
        bar = ("█" * round(share * WIDTH)).ljust(WIDTH, "·")
        many = self.unit == "tokens"
        amount = f"{self.done / 1e6:.2f} M" if many else f"{self.done:,}"
        said = note or f"loss {float(loss):.3f}"
        line = f"{bar} {share:4.0%} {amount} {self.unit}, {pace:,.{0 if many else 2}f}/s, {said}, {clock(left)} left"
        print(f"\r{line}\x1b[K" if self.terminal else line, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.terminal and not self.quiet:
            print(file=sys.stderr)


def clock(seconds: float) -> str:
    """75.0 -> '1:15'."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
