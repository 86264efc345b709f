"""What a probe of one output answers: every policy, lookahead, threshold and exit layer, without running a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis import cost
from specviz.analysis.as_trace import as_trace
from specviz.analysis.cost import Costs
from specviz.analysis.grid import simulate_grid
from specviz.analysis.lens import LensTable, parse_lens
from specviz.analysis.probe import Probe, parse_probe, probe_bytes
from specviz.analysis.simulate import Policy, Simulation, simulate
from specviz.figures.theme import Look
from specviz.trace import Trace, records_of, to_json
from specviz.ui.drawing import plain

# The thresholds of the curve, and the lookaheads of the map; a probe holds lookaheads up to MAX_LOOKAHEAD.
THRESHOLDS = tuple(np.round(np.linspace(0, 1, 21), 2).tolist())
MAX_LOOKAHEAD = 20
MAP_LOOKAHEADS = tuple(range(1, 13))


@dataclass(eq=False)
class Study:
    """A probe with the costs of this machine; for exit layers also the lens. Answers are plain JSON values."""

    probe: Probe
    costs: Costs
    lens: LensTable | None = None

    def __post_init__(self):
        # The same numbers are asked for again with every movement of a slider.
        self._grid = lru_cache(maxsize=64)(self._grid)

    def pack(self) -> dict[str, Any]:
        """The study as plain Python values, which another process can take; ``unpack`` reads them."""
        lens = self.lens.as_dict() if self.lens is not None else None
        return {"probe": probe_bytes(self.probe), "costs": asdict(self.costs), "lens": lens}

    @classmethod
    def unpack(cls, data: dict[str, Any]) -> Study:
        lens = parse_lens(data["lens"]) if data["lens"] is not None else None
        return cls(parse_probe(data["probe"]), Costs(**data["costs"]), lens)

    def _layer(self, exit_layer: int | None) -> int | None:
        return exit_layer if self.probe.kind == "early-exit" else None

    def _grid(self, policy: str, lookaheads: tuple[int, ...], thresholds: tuple[float, ...], layers):
        return simulate_grid(
            self.probe, policy, lookaheads=lookaheads, thresholds=thresholds, exit_layers=layers
        )

    def _speeds(self, grid) -> np.ndarray:
        seconds = cost.grid_seconds(self.costs, grid, self.probe.kind == "early-exit")
        return grid.tokens * self.costs.plain_token() / seconds

    def simulation(self, policy: str, lookahead: int, threshold: float, exit_layer: int | None) -> Simulation:
        """What a run with these settings would log."""
        known = threshold if policy == "dynamic" else 0.0
        return simulate(self.probe, Policy(policy, lookahead, known), self._layer(exit_layer))

    # --- view 2: lookahead and oracle ----------------------------------------------------------------------

    def lookahead(
        self, policy: str, lookahead: int, threshold: float, exit_layer: int | None, look: Look
    ) -> dict[str, Any]:
        """Figures and numbers of one policy, beside those of every other at the same settings."""
        from specviz.figures import iterations, policies, thresholds

        layer = self._layer(exit_layer)
        chosen = self.simulation(policy, lookahead, threshold, exit_layer)
        trace = as_trace(self.probe, chosen, cost.iteration_seconds(self.costs, chosen, layer))
        oracle = iterations.oracle_lookahead(trace, self.probe, layer)
        rows, speeds = [], {}
        for name in ("autoregressive", "constant", "heuristic", "dynamic", "oracle"):
            other = self.simulation(name, lookahead, threshold, exit_layer)
            speeds[name] = cost.predict(self.costs, other, layer).speedup
            rows.append((name, len(other.iterations), other.drafted))
        forwards = pd.DataFrame(rows, columns=["policy", "target_forwards", "draft_forwards"])
        grid = self._grid("dynamic", (lookahead,), THRESHOLDS, None if layer is None else (layer,))
        wasted = 1 - np.nan_to_num(grid.acceptance_rate[0, :, 0], nan=1.0)
        curve = pd.DataFrame({"threshold": THRESHOLDS, "speed": self._speeds(grid)[0, :, 0], "waste": wasted})
        lines = {name: speeds[name] for name in ("constant", "heuristic", "oracle")}
        now = threshold if policy == "dynamic" else None
        return {
            "figures": {
                "lookahead": plain(iterations.lookahead(trace, oracle, look)),
                "policies": plain(policies.policy_forwards(forwards, None, look)),
                "threshold": plain(thresholds.threshold_curve(curve, now, lines, "speedup", look)),
            },
            "numbers": self.numbers(chosen, exit_layer),
            "speeds": speeds,
        }

    def numbers(self, simulation: Simulation, exit_layer: int | None) -> dict[str, Any]:
        """The run in numbers, its speed as predicted from the costs of this machine."""
        prediction = cost.predict(self.costs, simulation, self._layer(exit_layer))
        drafted, iterations = simulation.drafted, len(simulation.iterations)
        return {
            "tokens": simulation.tokens,
            "iterations": iterations,
            "drafted": drafted,
            "accepted": simulation.accepted,
            "rate": simulation.accepted / drafted if drafted else None,
            "length": simulation.tokens / max(1, iterations),
            "speedup": prediction.speedup,
            "tokens_per_second": prediction.tokens_per_second,
            "exact": simulation.exact,
        }

    # --- view 3: exit layers -------------------------------------------------------------------------------

    def layers(
        self, lookahead: int, threshold: float, exit_layer: int, look: Look, wide: bool = True
    ) -> dict[str, Any]:
        """The sweet spot, the map, the lens and the cache picture at an exit layer. wide: room for words in the lens."""
        from specviz.figures import exits, kvq, lens

        chosen = self.simulation("dynamic", lookahead, threshold, exit_layer)
        trace = as_trace(self.probe, chosen, cost.iteration_seconds(self.costs, chosen, exit_layer))
        spot = self.sweet_spot(lookahead, threshold)
        grid = self._grid("dynamic", MAP_LOOKAHEADS, (threshold,), None)
        speeds = self._speeds(grid)[:, 0, :]
        cells = [
            (layer, ahead, float(speeds[i, j]))
            for i, layer in enumerate(grid.rows)
            for j, ahead in enumerate(MAP_LOOKAHEADS)
        ]
        table = pd.DataFrame(cells, columns=["exit_layer", "lookahead", "speed"])
        nearest = min(MAP_LOOKAHEADS, key=lambda ahead: abs(ahead - lookahead))
        total = self.probe.layers
        # From the model's first own token on, as the strip begins too.
        start = min(max(self.lens.prompt - 1, 0), len(self.lens.ids) - 1) if self.lens else None
        return {
            "figures": {
                "sweet_spot": plain(exits.sweet_spot(spot, None, total, exit_layer, look)),
                "heat": plain(exits.heat_map(table, "speedup", (exit_layer, nearest), look)),
                "lens": plain(lens.lens(self.lens, start, chosen=exit_layer, words=wide, look=look)),
                "kvq": plain(kvq.kvq(trace, 0, 6, look)),
            },
            "numbers": self.numbers(chosen, exit_layer),
            "best": spot.loc[spot["speed"].idxmax()].to_dict(),
        }

    def sweet_spot(self, lookahead: int, threshold: float) -> pd.DataFrame:
        """One row an exit layer: acceptance, cost of a draft step, predicted speed-up with its spread."""
        grid = self._grid("dynamic", (lookahead,), (threshold,), None)
        plain_token = self.costs.plain_token()
        speed, low, high = (
            grid.tokens * plain_token / cost.grid_seconds(self.costs, grid, True, level)[:, 0, 0]
            for level in (cost.MEDIAN, cost.HIGH, cost.LOW)
        )
        rate = np.nan_to_num(grid.acceptance_rate[:, 0, 0])
        return pd.DataFrame(
            {
                "exit_layer": grid.rows,
                "acceptance": rate,
                "draft_cost": [self.costs.cost_ratio(layer) for layer in grid.rows],
                "speed": speed,
                "speed_low": low,
                "speed_high": high,
            }
        )

    def compare(self, other: Study, lookahead: int, threshold: float) -> dict[str, Any]:
        """Acceptance and speed over the exit layer, of this model and of another one."""
        out = {}
        for name, study in (("ours", self), ("other", other)):
            spot = study.sweet_spot(lookahead, threshold)
            out[name] = {"name": study.probe.target, **{key: spot[key].tolist() for key in ("exit_layer", "acceptance", "speed")}}
        return out

    def trace_lines(self, policy: str, lookahead: int, threshold: float, exit_layer: int | None) -> list[str]:
        """A simulated run as the lines of a log, for the player."""
        chosen = self.simulation(policy, lookahead, threshold, exit_layer)
        seconds = cost.iteration_seconds(self.costs, chosen, self._layer(exit_layer))
        trace: Trace = as_trace(self.probe, chosen, seconds)
        return [to_json(record) for record in records_of(trace)]
