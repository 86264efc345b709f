"""A progress line on standard error for whatever takes long: bytes, then seconds."""

from __future__ import annotations

import sys
import time


class Printer:
    """Called with (stage, done, total or None, unit); as a context manager it leaves the line clean.

    On a terminal one line is drawn over and over; into a file or a pipe each stage is written once, when it begins,
    and big stages again at every quarter.
    """

    def __init__(self, stream=None, interval: float = 0.1):
        self.stream = stream or sys.stderr
        self.live = bool(getattr(self.stream, "isatty", lambda: False)())
        self.interval = interval  # seconds between two drawings of one stage
        self._stage: str | None = None
        self._drawn = 0.0
        self._quarter = 0
        self._width = 0

    def __call__(self, stage: str, done: float, total: float | None, unit: str) -> None:
        fresh = stage != self._stage
        now = time.monotonic()
        quarter = int(4 * done / total) if total else 0
        if self.live:
            finished = total is not None and done >= total
            if fresh or finished or now - self._drawn >= self.interval:
                if fresh and self._stage is not None:
                    self._end()
                self._draw(line(stage, done, total, unit))
                self._drawn = now
        elif fresh or (unit == "bytes" and quarter > self._quarter):
            print(line(stage, done, total, unit), file=self.stream, flush=True)
        self._stage = stage
        self._quarter = quarter

    def __enter__(self) -> Printer:
        return self

    def __exit__(self, *_) -> None:
        if self.live and self._stage is not None:
            self._end()
        self._stage = None

    def _draw(self, text: str) -> None:
        self.stream.write("\r" + text.ljust(self._width))
        self.stream.flush()
        self._width = len(text)

    def _end(self) -> None:
        self.stream.write("\n")
        self.stream.flush()
        self._width = 0


def line(stage: str, done: float, total: float | None, unit: str) -> str:
    """'downloading x  [######....]  61 MB of 93 MB', 'loading x  3 s' or 'probing  [##......]  2 of 8 prompts'."""
    amount, behind = _AMOUNTS.get(unit, (lambda value: f"{value:.0f}", f" {unit}"))
    if not total:
        return f"{stage}  {amount(done)}{behind}"
    part = min(1.0, max(0.0, done / total))
    bar = "#" * round(20 * part)
    return f"{stage}  [{bar:.<20}]  {amount(done)} of {amount(total)}{behind}"


def megabytes(count: float) -> str:
    """Decimal units, as disks and downloads are sold: '93 MB', '13.3 GB'."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


# unit -> how an amount is written, and what stands behind the last one; other units are counted and named
_AMOUNTS = {"bytes": (megabytes, ""), "seconds": (lambda value: f"{value:.0f} s", "")}
