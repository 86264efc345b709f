"""Kill -9 during a sweep, a fetch, a training checkpoint and a trace write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosting.kills import KINDS


def killed(kind: str, times: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hosting.kills", kind, "--times", str(times)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1500:]
    print("\n" + done.stdout.strip())
    assert f"killed {times} times" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_kills_lose_nothing_that_was_finished(kind):
    killed(kind, 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_kills_lose_nothing_that_was_finished(kind):
    killed(kind, 20)
