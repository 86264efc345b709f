"""A simulation as a trace: everything that draws runs can draw one that was only simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specviz.analysis.probe import Probe
from specviz.analysis.simulate import SimulatedIteration, Simulation
from specviz.trace import DraftToken, Footer, Header, Iteration, TargetToken, Trace


def as_trace(
    probe: Probe,
    simulation: Simulation,
    seconds: Callable[[SimulatedIteration], tuple[float, float]] | None = None,
) -> Trace:
    """The log that the real run would have written. seconds: (drafting, verifying) of an iteration, as a cost model
    predicts them; 0 where it is not given. The method's name carries no promise that it ran: ``simulated`` is set."""
    policy = simulation.policy
    early = probe.kind == "early-exit" and policy.name != "autoregressive"
    exit_layer = probe.rows[simulation.row] if early else None
    name = policy.name
    if early:
        name = {"constant": "early-exit"}.get(name, f"early-exit-{name}")
    method: dict[str, Any] = {"name": name, "simulated": True}
    if policy.name not in ("oracle", "autoregressive"):
        method["lookahead"] = policy.lookahead
    if policy.threshold:
        method["threshold"] = policy.threshold
    if exit_layer is not None:
        method["exit_layer"] = exit_layer
    header = Header(
        method=method,
        target={"name": probe.target, "layers": probe.layers},
        draft={"name": probe.draft} if probe.draft else None,
        prompt=probe.prompt,
        prompt_ids=probe.prompt_ids,
        limit=probe.limit,
        sampling={"temperature": 0.0},
    )
    iterations, total = [], 0.0
    for simulated in simulation.iterations:
        times = seconds(simulated) if seconds else (0.0, 0.0)
        total += sum(times)
        iterations.append(_logged(probe, simulation, simulated, times))
    footer = Footer(
        probe.end, simulation.tokens, len(iterations), simulation.drafted, simulation.accepted, total, 0.0, probe.tail
    )
    return Trace(header, iterations, footer)


def _logged(probe: Probe, simulation: Simulation, simulated: SimulatedIteration, times) -> Iteration:
    start = simulated.start - probe.offset
    ids, confidence = probe.drafted(simulation.row, start, simulated.drafted)
    draft = tuple(
        DraftToken(
            int(token),
            probe.pieces[start + i] if i < simulated.accepted else probe.text_of(token),
            min(float(confidence[i]), 1.0),
            target_probability=float(probe.target_probability[start + i]) if i < simulated.accepted else None,
        )
        for i, token in enumerate(ids)
    )
    ending = None
    if simulated.ending is not None:
        at = start + simulated.accepted
        ending = TargetToken(
            probe.output_ids[at], probe.pieces[at], simulated.ending, min(float(probe.target_probability[at]), 1.0)
        )
    policy: dict[str, Any] = {"lookahead": simulated.lookahead}
    if simulation.policy.threshold:
        policy["threshold"] = simulation.policy.threshold
    return Iteration(
        simulated.index, simulated.start, draft, simulated.stop, simulated.accepted, ending, policy, *times
    )
