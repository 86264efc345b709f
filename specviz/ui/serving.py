"""Around the page: what it writes to standard error, and how it ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time

from specviz.errors import UsageError

log = logging.getLogger("specviz")

# A container is killed some seconds after it was asked to end; runs notice at their next iteration.
END_SECONDS = 3.0
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def start_log() -> None:
    """One line an event on standard error, from the level in SPECVIZ_LOG on. UsageError for a level that is none."""
    level = os.environ.get("SPECVIZ_LOG", "INFO").upper()
    if level not in LEVELS:
        raise UsageError(f"SPECVIZ_LOG={level}: choose one of {', '.join(LEVELS)}")
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.propagate = False
    log.setLevel(level)


def end_on_sigterm(runs) -> None:
    """When the system asks the process to end: take no more runs, end those that go on at their iteration, leave."""
    if threading.current_thread() is not threading.main_thread():
        return  # a page inside another program, which has its own signals

    def end() -> None:
        deadline = time.monotonic() + END_SECONDS
        going = runs.close()
        while any(not run.ended for run in going) and time.monotonic() < deadline:
            time.sleep(0.02)
        log.info("ended by SIGTERM: %d of %d runs were stopped", sum(run.ended for run in going), len(going))
        logging.shutdown()
        # Threads that wait for a network or a long operation would hold up an orderly exit.
        os._exit(0)

    def asked(number, frame) -> None:
        # Not here: a signal comes in between two operations of the main thread, which may hold a lock.
        threading.Thread(target=end, daemon=True).start()

    signal.signal(signal.SIGTERM, asked)
