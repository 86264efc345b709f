"""How much visitors may ask of the page, in one place. Each number can be set by an environment variable:
``SPECVIZ_`` and the name of the field in capitals, such as ``SPECVIZ_NEW_TOKENS=256``. README.md lists them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from specviz.errors import UsageError

PREFIX = "SPECVIZ_"


@dataclass(frozen=True)
class Limits:
    """Sizes in characters, tokens or bytes as named; times in seconds."""

    prompt: int = 8000  # characters
    new_tokens: int = 512
    probe_tokens: int = 256
    lookahead: int = 64
    racers: int = 6
    sweep_cells: int = 4000  # combinations of one sweep, exit layers apart
    upload_bytes: int = 8_000_000
    upload_records: int = 5000
    run_seconds: float = 300.0  # what a run may take once its models are loaded
    runs_at_once: int = 1
    waiting: int = 40  # runs that may wait for the models
    models_in_memory: int = 3
    cache_bytes: int = 40_000_000_000  # models of the zoo on the disk; a download that would exceed it is refused
    runs_kept: int = 300
    kept_bytes: int = 200_000_000  # of their records
    keep_seconds: float = 1800.0  # a run that nobody has asked for since is forgotten
    abandoned_seconds: float = 90.0  # a working run whose page asks for nothing any more is stopped; hidden tabs ask rarely

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """The defaults, with what the environment sets. UsageError names a variable that is no number above 0."""
        found = {}
        for field in fields(cls):
            variable = PREFIX + field.name.upper()
            if environment.get(variable, "").strip():
                found[field.name] = _number(variable, environment[variable], whole=isinstance(field.default, int))
        return cls(**found)


def _number(variable: str, given: str, whole: bool) -> float:
    try:
        value = int(given) if whole else float(given)
    except ValueError:
        value = -1
    if not 0 < value < 1e15:
        raise UsageError(f"{variable}={given}: give a {'whole number' if whole else 'number'} above 0")
    return value


def public(environment: Mapping[str, str] = os.environ) -> bool:
    """Do strangers use this page? Then it loads models of the zoo only. So on Spaces, unless SPECVIZ_PUBLIC=0."""
    given = environment.get("SPECVIZ_PUBLIC", "").strip().lower()
    if given:
        return given not in ("0", "false", "no", "off")
    return bool(environment.get("SPACE_ID"))


LIMITS = Limits.from_environment()
