"""Models in memory: loaded once, lent to runs, the least recently used given back first, never one in use."""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from specviz.analysis.cost import Costs
from specviz.analysis.timing import measure_costs
from specviz.errors import UsageError
from specviz.models import fetch, hub, zoo
from specviz.models.loading import LoadedModel, Progress, load_model
from specviz.models.pairing import check_pair
from specviz.models.streams import layer_count
from specviz.ui.limits import LIMITS

# Visitors wait for this; the quartiles say how far such a quick measurement can be trusted.
COST_SECONDS = 6.0

POLL = 0.05  # seconds between two looks at a model that is being loaded


@dataclass
class _Place:
    model: LoadedModel
    users: int = 0


class Shelf:
    """Holds a few loaded models. Safe to use from several threads."""

    def __init__(self, room: int = LIMITS.models_in_memory, load: Callable[..., LoadedModel] = load_model):
        self.room = room
        self.fixed = False  # on ZeroGPU what is there at the start is all that there is
        self._load = load
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._costs: dict[tuple[str, str | None], Costs] = {}
        self._lock = threading.Lock()  # of the table, held for moments
        self._loading = threading.Lock()  # one model is loaded at a time
        self._turn = threading.Lock()  # one run at a time on what is not a CPU: captured graphs allow no company

    def put(self, name: str, loaded: LoadedModel) -> None:
        """Offer a model that is already in memory under a name of the zoo."""
        with self._lock:
            self._places[name] = _Place(loaded)

    def layers(self, name: str) -> int | None:
        """Number of layers of a model in memory; None where it is not."""
        place = self._places.get(name)
        return layer_count(place.model) if place else None

    def names(self) -> list[str]:
        """What is in memory, the least recently used first."""
        with self._lock:
            return list(self._places)

    @contextmanager
    def lent(self, *names: str | None) -> Iterator[Lease]:
        """Models that stay in memory until the block ends. ``None`` among the names stays None."""
        lease = Lease(self, names)
        try:
            yield lease
        finally:
            lease.give_back()

    def _take(self, name: str, progress: Progress | None) -> LoadedModel:
        """Count one more user of a model, which is loaded if it is not there."""
        found = self._found(name)
        if found is not None:
            return found
        while not self._loading.acquire(timeout=POLL):
            if progress:  # a stop is noticed while another's model is being loaded
                progress(f"waiting {name}", 0, None, "seconds")
        try:
            found = self._found(name)
            if found is not None:
                return found
            if self.fixed:
                raise UsageError(f"{name} is not in memory, and here models are loaded at the start only")
            check_disk(name)
            self.make_room()
            loaded = self._load(name, progress=progress)
            with self._lock:
                self._places[name] = _Place(loaded, users=1)
            return loaded
        finally:
            self._loading.release()

    def _found(self, name: str) -> LoadedModel | None:
        with self._lock:
            place = self._places.get(name)
            if place is None:
                return None
            self._places.move_to_end(name)
            place.users += 1
            return place.model

    def _give_back(self, name: str) -> None:
        with self._lock:
            place = self._places.get(name)
            if place is not None:
                place.users = max(0, place.users - 1)

    def make_room(self, places: int = 1) -> None:
        """Give back models that nobody uses until so many places are free, or all models are in use."""
        gone = False
        with self._lock:
            for name in [name for name, place in self._places.items() if not place.users]:
                if len(self._places) + places <= self.room:
                    break
                del self._places[name]
                gone = True
        if gone:
            free_memory()

    def clear(self) -> None:
        """Give back every model that nobody uses: there was no memory left."""
        if not self.fixed:
            self.make_room(places=self.room)
        free_memory()

    def costs(self, target: LoadedModel, draft: LoadedModel | None, progress: Progress | None = None) -> Costs:
        """What the parts of an iteration cost on this machine: measured once for each pair, in a few seconds."""
        key = (target.name, draft.name if draft else None)
        if key not in self._costs:
            self._costs[key] = measure_costs(
                target, draft, repetitions=5, most_seconds=COST_SECONDS, progress=progress
            )
        return self._costs[key]

    def keep_on_gpu(self, names: list[str]) -> None:
        """Load models to stay, on the GPU that ZeroGPU lends to each run: it wants them there before the page opens."""
        for name in names:
            loaded = self._load(name, device="cpu", dtype="bfloat16", download=False)
            device = torch.device("cuda")
            self.put(name, replace(loaded, model=loaded.model.to(device), device=device))
        self.fixed = True


class Lease:
    """Models on loan; ``load`` brings them, yielding between looks so that whoever waits can leave."""

    def __init__(self, shelf: Shelf, names: tuple[str | None, ...]):
        self.models: tuple[LoadedModel | None, ...] = ()
        self._shelf, self._names = shelf, names
        self._taken: list[str] = []
        self._over = False
        self._has_turn = False
        self._lock = threading.Lock()

    def load(self, progress: Progress | None = None) -> Iterator[None]:
        """In a thread of its own: a Hub that hangs must not hold up the page. The thread ends at its next report."""
        if all(name is None or name in self._shelf._places for name in self._names):
            self._load(progress, [])
        else:
            failed: list[BaseException] = []
            thread = threading.Thread(target=self._load, args=(progress, failed), daemon=True, name="loading")
            thread.start()
            while thread.is_alive():
                thread.join(POLL)
                yield
            if failed:
                raise failed[0]
        if len(self.models) == 2 and all(self.models):
            check_pair(*self.models)
        if any(model is not None and model.device.type != "cpu" for model in self.models):
            while not self._shelf._turn.acquire(timeout=POLL):
                yield
            self._has_turn = True

    def _load(self, progress: Progress | None, failed: list[BaseException]) -> None:
        def tell(*values) -> None:
            if self._over:
                raise Abandoned
            if progress:
                progress(*values)

        try:
            found = []
            for name in self._names:
                found.append(None if name is None else self._shelf._take(name, tell))
                with self._lock:
                    if name is not None and self._over:
                        self._shelf._give_back(name)
                        return
                    self._taken += [name] if name is not None else []
            self.models = tuple(found)
        except BaseException as error:
            if threading.current_thread().name != "loading":
                raise
            failed.append(error)

    def give_back(self) -> None:
        with self._lock:
            self._over = True
            for name in self._taken:
                self._shelf._give_back(name)
            self._taken.clear()
            self.models = ()
        if self._has_turn:
            self._has_turn = False
            self._shelf._turn.release()


class Abandoned(Exception):
    """Raised inside the loading of a model that nobody waits for any more."""


def check_disk(name: str, most: float = LIMITS.cache_bytes) -> None:
    """UsageError if a model that is not on this machine would make the cache of models larger than it may be."""
    entry = zoo.find(name)
    if Path(name).is_dir() or (entry is not None and entry.here):
        return
    needed = (entry.download or 2 * entry.parameters) if entry is not None else 0
    used = sum(hub.disk_used(one.where) for one in zoo.MODELS.values() if one.source == "hub")
    used += sum(file.stat().st_size for file in (fetch.cache_dir() / "models").glob("*/*") if file.is_file())
    if used + needed > most:
        raise UsageError(
            f"{name} takes {needed / 1e9:.1f} GB of disk, and of the {most / 1e9:.1f} GB that models may take here "
            f"{used / 1e9:.1f} GB are used: choose a model that is here"
        )


def free_memory() -> None:
    """Return to the system what models have left behind: they hold cycles, which only a collection finds."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


