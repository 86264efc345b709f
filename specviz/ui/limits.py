"""How much one visitor may ask of the page, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes in characters, tokens or bytes as named; times in seconds."""

    prompt: int = 8000  # characters
    new_tokens: int = 512
    lookahead: int = 64
    probe_tokens: int = 256
    racers: int = 6
    upload_bytes: int = 8_000_000
    upload_records: int = 5000
    waiting: int = 40  # runs that may wait for the models
    runs_kept: int = 300
    keep_seconds: float = 1800.0  # a run that nobody has asked for since is forgotten
    abandoned_seconds: float = 90.0  # a working run whose page asks for nothing any more is stopped; hidden tabs ask rarely
    models_in_memory: int = 3


LIMITS = Limits()
