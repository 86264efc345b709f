"""A grid of real runs, each beside its prediction: one JSONL row a cell, resumable after a kill.

The file begins with a row of kind "sweep": what was asked for, and the measured costs. Each further row is one cell: one
configuration, run on all prompts. Rows are written whole and flushed; a row that a kill cut short is taken off when the
sweep goes on, and finished cells are not run again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from specviz.analysis.cost import Costs, Prediction, predict, textbook_speedup
from specviz.analysis.measure import measure_probe
from specviz.analysis.metrics import measure
from specviz.analysis.probe import Probe
from specviz.analysis.simulate import Policy, simulate
from specviz.analysis.timing import measure_costs
from specviz.decoding import MethodConfig, build, decode
from specviz.errors import UsageError
from specviz.models.loading import LoadedModel, Progress
from specviz.trace import Trace

SCHEMA = 1
SWEPT = ("exit_layer", "lookahead", "threshold")


@dataclass(frozen=True)
class Plan:
    """What to run. cells: configurations in the order in which they run. prompts: (id, token ids) of each."""

    target: LoadedModel
    draft: LoadedModel | None
    cells: tuple[MethodConfig, ...]
    prompts: tuple[tuple[str, tuple[int, ...]], ...]
    limit: int = 64  # most new tokens of a run
    repetitions: int = 1  # of each run; the median counts

    def __post_init__(self):
        if not self.cells or not self.prompts:
            raise UsageError("a sweep needs at least one cell and one prompt")
        for config in self.cells:
            build(config, self.target, self.draft)  # says now what would fail in the middle of the night

    def identity(self) -> dict[str, Any]:
        """What has to be the same for a sweep to go on in a file: the cells may be others."""
        digest = hashlib.sha256(json.dumps(self.prompts).encode()).hexdigest()[:16]
        return {
            "target": self.target.name, "draft": self.draft.name if self.draft else None,
            "dtype": str(self.target.dtype).removeprefix("torch."), "device": str(self.target.device),
            "prompts": [name for name, _ in self.prompts], "prompts_digest": digest,
            "limit": self.limit, "repetitions": self.repetitions,
        }  # fmt: skip


def cells_of(method: str, layers: int, **values: Sequence[float] | None) -> tuple[MethodConfig, ...]:
    """All combinations of exit_layer, lookahead and threshold for a method; None takes its default.

    UsageError for a parameter that the method does not have.
    """
    base = MethodConfig(method)
    for name, given in values.items():
        if given is not None and name not in base.spec.parameters:
            raise UsageError(f"the method {method} has no {name.replace('_', ' ')}: leave it out")
    names = [name for name in SWEPT if values.get(name) is not None]
    grid = product(*(values[name] for name in names))
    return tuple(replace(base, **dict(zip(names, cell, strict=True))).filled(layers) for cell in grid)


def run_sweep(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    costs: Costs | None = None,
    progress: Progress | None = None,
    told: Callable[[dict[str, Any], float], None] | None = None,
    command: str | None = None,
) -> list[dict[str, Any]]:
    """Run the cells that the file does not hold yet; returns the rows of all cells of the plan, in its order.

    told: called behind each new row with it and the seconds that are probably left. costs: measured here where they
    are not given and the file has none. UsageError if the file holds another sweep or something else.
    """
    header, done = open_sweep(path, plan)
    wanted = [key_of(asdict(config)) for config in plan.cells]
    missing = [config for config in plan.cells if key_of(asdict(config)) not in done]
    if not missing:
        return [done[key] for key in wanted]
    if header is None:
        context = max(len(ids) for _, ids in plan.prompts) + plan.limit // 2
        costs = costs or measure_costs(plan.target, plan.draft, context=context, progress=progress)
        header = {"kind": "sweep", "schema": SCHEMA, **plan.identity(), "command": command, "costs": asdict(costs)}
        _append(path, header)
    else:
        costs = Costs(**{key: _tuples(value) for key, value in header["costs"].items()})
    runner = _Runner(plan, costs, missing, progress)
    left = runner.expected_seconds(missing)
    spent = gone = 0.0
    for config in missing:
        began = time.perf_counter()
        row = runner.cell(config)
        _append(path, row)
        done[key_of(row)] = row
        spent += time.perf_counter() - began
        gone += runner.expected_seconds([config])
        if told:
            # Cells differ much in length, so time left is counted in predicted seconds, at the pace seen so far.
            told(row, (left - gone) * spent / gone if gone else 0.0)
    return [done[key] for key in wanted]


class _Runner:
    """Plain runs and probes of all prompts, made once, and the cells."""

    def __init__(self, plan: Plan, costs: Costs, cells: Sequence[MethodConfig], progress: Progress | None):
        self.plan, self.costs = plan, costs
        self.plain: list[Trace] = []
        self.probes: list[Probe | None] = []
        alone = build(MethodConfig("autoregressive"), plan.target)
        spec = cells[0].spec
        layers = sorted({config.exit_layer for config in cells}) if spec.drafter == "early-exit" else None
        # Where a probe says nothing (prompt lookup) cells are measured without a prediction.
        probed = spec.drafter in ("assistant", "early-exit")
        lookahead = max((config.lookahead or 0 for config in cells), default=0)
        for index, (_, ids) in enumerate(plan.prompts):
            self.plain.append(Trace.collect(decode(ids, alone, plan.limit)))
            draft = plan.draft if spec.drafter == "assistant" else None
            self.probes.append(
                measure_probe(plan.target, ids, draft, limit=plan.limit, max_lookahead=max(lookahead, 1),
                              exit_layers=layers, trace=self.plain[-1]) if probed else None
            )  # fmt: skip
            if progress:
                progress("probing", index + 1, len(plan.prompts), "prompts")

    def predictions(self, config: MethodConfig) -> list[tuple[Prediction, Any, Probe]]:
        found = []
        for probe in self.probes:
            if probe is not None:
                simulation = simulate(probe, Policy.of(config), config.exit_layer)
                found.append((predict(self.costs, simulation, config.exit_layer), simulation, probe))
        return found

    def expected_seconds(self, cells: Sequence[MethodConfig]) -> float:
        """Predicted length of cells, the plain runs beside them included."""
        plain = sum(len(trace.output_ids) for trace in self.plain) * self.costs.plain_token()
        total = 0.0
        for config in cells:
            made = sum(prediction.seconds for prediction, _, _ in self.predictions(config))
            total += self.plan.repetitions * (plain + (made or plain))
        return total

    def cell(self, config: MethodConfig) -> dict[str, Any]:
        """Run one configuration on all prompts, plain decoding beside each run: they share what the machine does."""
        plan = self.plan
        method = build(config, plan.target, plan.draft)
        alone = build(MethodConfig("autoregressive"), plan.target)
        seconds = plain_seconds = 0.0
        totals = dict.fromkeys(("tokens", "iterations", "drafted", "accepted"), 0)
        identical, as_simulated = True, True
        predictions = self.predictions(config)
        for index, (_, ids) in enumerate(plan.prompts):
            runs, plains = [], []
            for _ in range(plan.repetitions):
                plains.append(Trace.collect(decode(ids, alone, plan.limit)))
                runs.append(Trace.collect(decode(ids, method, plan.limit)))
            numbers = measure(runs[-1])
            seconds += float(np.median([measure(run).seconds for run in runs]))
            plain_seconds += float(np.median([measure(run).seconds for run in plains]))
            for name in totals:
                totals[name] += getattr(numbers, name)
            identical &= all(run.output_ids == self.plain[index].output_ids for run in runs)
            if predictions:
                simulated = [(i.drafted, i.accepted) for i in predictions[index][1].iterations]
                as_simulated &= simulated == [(i.drafted, i.accepted) for i in runs[-1].iterations]
        row = {
            "kind": "cell", "method": config.name, **{name: getattr(config, name) for name in SWEPT},
            **totals, "acceptance_rate": totals["accepted"] / totals["drafted"] if totals["drafted"] else None,
            "seconds": seconds, "tokens_per_second": totals["tokens"] / seconds,
            "plain_seconds": plain_seconds, "speedup": plain_seconds / seconds, "identical": identical,
        }  # fmt: skip
        return row | self._predicted(config, predictions, row, as_simulated)

    def _predicted(self, config: MethodConfig, predictions: list, row: dict, as_simulated: bool) -> dict[str, Any]:
        if not predictions:
            return {}
        seconds = sum(p.seconds for p, _, _ in predictions)
        tokens = sum(len(probe.output_ids) for _, _, probe in predictions)
        plain = tokens * self.costs.plain_token()
        at = [probe.row_of(config.exit_layer) for _, _, probe in predictions]
        alpha = sum(probe.match[r].sum() for r, (_, _, probe) in zip(at, predictions, strict=True)) / tokens
        ratio = self.costs.cost_ratio(config.exit_layer)
        return {
            "as_simulated": as_simulated,
            "predicted_seconds": seconds,
            "predicted_low": sum(p.low for p, _, _ in predictions),
            "predicted_high": sum(p.high for p, _, _ in predictions),
            "predicted_tokens_per_second": tokens / seconds,
            "predicted_speedup": plain / seconds,
            "textbook_alpha": float(alpha), "textbook_cost_ratio": ratio,
            "textbook_speedup": textbook_speedup(float(alpha), config.lookahead, ratio)
            if config.lookahead is not None and config.spec.policy == "constant" and not config.threshold else None,
            "error": (tokens / seconds) / row["tokens_per_second"] - 1,
            "speedup_error": (plain / seconds) / row["speedup"] - 1,
        }  # fmt: skip


# --- the file --------------------------------------------------------------------------------------------

def key_of(row: dict[str, Any]) -> tuple:
    """What names a cell, of a row or of a configuration as a dict."""
    return (row.get("method") or row.get("name"), *(row.get(name) for name in SWEPT))


def read_sweep(path: str | os.PathLike[str]) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Header and cell rows of a file; a last line that was cut short is left out. UsageError names a broken line."""
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except FileNotFoundError:
        return None, []
    except OSError as error:
        raise UsageError(f"{os.fspath(path)}: {error.strerror}") from None
    header, rows = None, []
    for number, line in enumerate(lines[:-1], 1):
        try:
            row = json.loads(line)
            kind = row["kind"]
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{os.fspath(path)}, line {number}: not a row of a sweep; choose another file") from None
        if kind == "sweep":
            if row.get("schema", 0) > SCHEMA:
                raise UsageError(f"{os.fspath(path)}: schema {row['schema']} is newer than {SCHEMA}: update specviz")
            header = row
        elif kind == "cell" and header is not None:
            rows.append(row)
        elif header is None:
            raise UsageError(f"{os.fspath(path)}, line {number}: not a sweep; choose another file")
    return header, rows


def open_sweep(path: str | os.PathLike[str], plan: Plan) -> tuple[dict[str, Any] | None, dict[tuple, dict[str, Any]]]:
    """What a file holds of this plan: its header and its cells by key. Takes off a line that was cut short."""
    header, rows = read_sweep(path)
    if os.path.exists(path):
        raw = Path(path).read_bytes()
        if raw and not raw.endswith(b"\n"):
            with open(path, "r+b") as file:
                file.truncate(raw.rfind(b"\n") + 1)
    if header is not None:
        mine = plan.identity()
        for name, value in mine.items():
            if header.get(name) != value:
                raise UsageError(
                    f"{os.fspath(path)} holds another sweep: {name} is {header.get(name)!r} there and {value!r} here; "
                    "choose another file with --out"
                )
    return header, {key_of(row): row for row in rows}


def _append(path: str | os.PathLike[str], row: dict[str, Any]) -> None:
    try:
        with open(path, "a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno == errno.EINVAL:  # a pipe or a device cannot be synced, and need not be
            return
        raise UsageError(
            f"{os.fspath(path)}: {error.strerror}; finished cells are kept: make room, then run the same command again"
        ) from None


def _tuples(value):
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def errors(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, float, int]]:
    """(of what, median absolute error of the prediction, over how many cells)."""
    for name, title in (("error", "tokens per second"), ("speedup_error", "speed-up")):
        found = [abs(row[name]) for row in rows if row.get(name) is not None]
        if found:
            yield title, float(np.median(found)), len(found)
