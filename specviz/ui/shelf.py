"""Models in memory: loaded once, kept while they are used, the least recently used given back first."""

from __future__ import annotations

from collections import OrderedDict

from specviz.analysis.cost import Costs
from specviz.analysis.timing import measure_costs
from specviz.models import zoo
from specviz.models.loading import LoadedModel, Progress, load_model
from specviz.models.pairing import check_pair
from specviz.models.streams import layer_count
from specviz.ui.limits import LIMITS

# Visitors wait for this; the quartiles say how far such a quick measurement can be trusted.
COST_SECONDS = 6.0


class Shelf:
    """Holds a few loaded models. Used only by work on the model queue, so by one thread at a time."""

    def __init__(self, room: int = LIMITS.models_in_memory):
        self.room = room
        self._models: OrderedDict[str, LoadedModel] = OrderedDict()
        self._costs: dict[tuple[str, str | None], Costs] = {}

    def put(self, name: str, loaded: LoadedModel) -> None:
        """Offer a model that is already in memory under a name of the zoo."""
        self._models[name] = loaded

    def layers(self, name: str) -> int | None:
        """Number of layers of a model in memory; None where it is not."""
        return layer_count(self._models[name]) if name in self._models else None

    def model(self, name: str, progress: Progress | None = None) -> LoadedModel:
        if name in self._models:
            self._models.move_to_end(name)
            return self._models[name]
        while len(self._models) >= self.room:
            self._models.popitem(last=False)
        self._models[name] = load_model(name, progress=progress)
        return self._models[name]

    def pair(self, name: str, progress: Progress | None = None) -> tuple[LoadedModel, LoadedModel | None]:
        """Target and draft model of a pair of the zoo."""
        pair = zoo.pair(name)
        target = self.model(pair.target, progress)
        if pair.draft is None:
            return target, None
        draft = self.model(pair.draft, progress)
        check_pair(target, draft)
        return target, draft

    def costs(self, target: LoadedModel, draft: LoadedModel | None, progress: Progress | None = None) -> Costs:
        """What the parts of an iteration cost on this machine: measured once for each pair, in a few seconds."""
        key = (target.name, draft.name if draft else None)
        if key not in self._costs:
            self._costs[key] = measure_costs(
                target, draft, repetitions=5, most_seconds=COST_SECONDS, progress=progress
            )
        return self._costs[key]
