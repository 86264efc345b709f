"""A model of the Hugging Face Hub -> a folder of this machine, with every refusal as one line that says what to do."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from specviz.errors import UsageError
from specviz.models.weights import count_weights, weight_files

Progress = Callable[[str, float, "float | None", str], None]

# Weights as safetensors, config and tokenizer of the repository's root. Never its code, never pickles.
WANTED = ["*.json", "*.txt", "*.model", "*.jinja", "*.safetensors"]
UNWANTED = ["*/*", "consolidated*", "*.fp16.*", "*.fp32.*", "*.fp32-*", "*.fp16-*", "adapter_*"]

# A Hub that says nothing for so long is out of reach; its client by itself would wait for ever.
SILENCE_SECONDS = 10.0

# The Hub's own bot converts pickled weights; what anybody else proposes under that title is not taken.
BOT = "SFconvertbot"


def local_snapshot(repo: str, revision: str | None = None) -> tuple[Path, str] | None:
    """Folder and commit of a model that is in the Hub's cache with all its safetensors, else None. No network."""
    root = _cache() / ("models--" + repo.replace("/", "--"))
    names = [revision] if revision else ["main"]
    if not revision:  # weights converted by the bot lie under the pull request's own reference
        pulls = root / "refs" / "refs" / "pr"
        names += [f"refs/pr/{file.name}" for file in sorted(pulls.glob("*"))] if pulls.is_dir() else []
    for name in names:
        reference = root / "refs" / name
        try:
            commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else name
        except OSError:
            continue
        folder = root / "snapshots" / commit
        if commit and folder.is_dir() and whole(folder):
            return folder, commit
    return None


def whole(folder: Path) -> bool:
    """Does the folder hold a config and every safetensors file that its index names, none of them cut short?"""
    if not (folder / "config.json").is_file():
        return False
    try:
        files = weight_files(folder, folder.name)
        count_weights(files, folder.name)
    except (UsageError, OSError):
        return False
    return bool(files)


def _give_up_on_silence() -> None:
    from huggingface_hub import get_session

    hooks = get_session().event_hooks
    if _impatient not in hooks["request"]:
        get_session().event_hooks = {**hooks, "request": [*hooks["request"], _impatient]}


def _impatient(request) -> None:
    """The client asks about a repository with an explicit "no timeout", which no default of a session replaces."""
    asked = request.extensions.get("timeout") or {}
    request.extensions["timeout"] = {
        kind: asked.get(kind) or SILENCE_SECONDS for kind in ("connect", "read", "write", "pool")
    }


def _drop_damaged(repo: str) -> None:
    """Delete cut weights from the cache: the Hub's client takes any file that is there for whole."""
    for file in (_cache() / ("models--" + repo.replace("/", "--")) / "snapshots").glob("*/*.safetensors"):
        try:
            count_weights([file], repo)
        except UsageError:
            file.resolve().unlink(missing_ok=True)
            file.unlink(missing_ok=True)
        except OSError:
            continue


def disk_used(repo: str) -> int:
    """Bytes that a repository takes in the cache."""
    blobs = (_cache() / ("models--" + repo.replace("/", "--")) / "blobs").glob("*")
    return sum(blob.stat().st_size for blob in blobs if blob.is_file())


def snapshot(repo: str, revision: str | None = None, progress: Progress | None = None) -> tuple[Path, str]:
    """Folder and commit of a model, from the cache without any request if it is there whole, else downloaded.

    UsageError for no network, a missing or refused token, an unknown model or revision, no room on the disk, and
    repositories that hold no safetensors.
    """
    if (there := local_snapshot(repo, revision)) is not None:
        return there
    from huggingface_hub import snapshot_download

    _give_up_on_silence()
    _drop_damaged(repo)
    place = {
        "repo_id": repo,
        "cache_dir": _cache(),
        "endpoint": os.environ.get("HF_ENDPOINT") or None,
        "allow_patterns": WANTED,
        "ignore_patterns": UNWANTED,
    }
    with _spoken(repo, revision):
        silent = _bars(repo, 0, None)
        files = snapshot_download(**place, revision=revision, dry_run=True, tqdm_class=silent)
        if not any(file.filename.endswith(".safetensors") for file in files):
            revision = _converted(repo, place["endpoint"])
            files = snapshot_download(**place, revision=revision, dry_run=True, tqdm_class=silent)
        missing = sum(file.file_size or 0 for file in files if file.will_download)
        _room(repo, missing)
        folder = Path(snapshot_download(**place, revision=revision, tqdm_class=_bars(repo, missing, progress)))
    return folder, folder.name


def _converted(repo: str, endpoint: str | None) -> str:
    """The bot's pull request with safetensors, as a revision."""
    from huggingface_hub import HfApi

    title = "Adding `safetensors` variant of this model"
    for proposal in HfApi(endpoint=endpoint).get_repo_discussions(repo, discussion_type="pull_request"):
        if proposal.author == BOT and proposal.title == title and proposal.status == "open":
            return f"refs/pr/{proposal.num}"
    raise UsageError(
        f"{repo} holds no safetensors, and nothing else is loaded: convert it once at "
        f"https://huggingface.co/spaces/safetensors/convert, or save it with save_pretrained and give the folder"
    )


def _room(repo: str, needed: int) -> None:
    cache = _cache()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if needed > free - 100_000_000:
        raise UsageError(
            f"{repo} takes {needed / 1e9:.1f} GB of disk and {existing} has {free / 1e9:.1f} GB: make room, or point "
            "HF_HUB_CACHE at a folder on a larger disk"
        )


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE).expanduser()


def _bars(repo: str, total: int, progress: Progress | None):
    """A class to stand in for tqdm that reports bytes to `progress` and draws nothing."""
    from tqdm.auto import tqdm

    class Bar(tqdm):
        def __init__(self, *args, **kwargs):
            kwargs.pop("name", None)
            # One bar counts the bytes that arrive, one those written: the first moves first, so it is shown.
            self._counts = kwargs.get("unit") == "B" and "Downloading" in str(kwargs.get("desc", ""))
            self._seen = 0
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n=1):
            self._seen += n or 0
            if self._counts and progress is not None:
                progress(f"downloading {repo}", min(self._seen, total), total, "bytes")
            return super().update(n)

    return Bar


@contextmanager
def _spoken(repo: str, revision: str | None) -> Iterator[None]:
    """Turns what the Hub's client raises into one line that says what to do."""
    from huggingface_hub import errors, get_token

    page = f"https://huggingface.co/{repo}"
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        chain = list(_causes(error))

        def caught(*kinds) -> bool:
            return any(isinstance(link, kinds) for link in chain)

        statuses = [getattr(getattr(link, "response", None), "status_code", None) for link in chain]
        status = next((number for number in statuses if number), None)
        if caught(errors.GatedRepoError):
            if get_token():
                said = f"{repo} is gated and this token's account has no access: ask for it on {page}"
            else:
                said = f"{repo} is gated: accept its licence on {page}, then set HF_TOKEN to a token of that account"
        elif caught(errors.RevisionNotFoundError):
            said = f"{repo} has no revision {revision!r}: see {page}/tree/main for those it has"
        elif caught(errors.RepositoryNotFoundError) or status == 404:
            said = f"the Hub has no model {repo}, or it is private: check the spelling, or set HF_TOKEN if it is yours"
        elif caught(errors.HFValidationError):
            said = f"{repo!r} is no model of the zoo, no folder and no Hub id: a Hub id has the form owner/name"
        elif status in (401, 403):
            said = f"the Hub refuses the token in HF_TOKEN or of the last login for {repo}: make a new one"
        elif status == 429:
            said = f"the Hub asks for a pause (too many requests) before it gives {repo}: try again in some minutes"
        elif status:
            said = f"the Hub answers {status} for {repo}: try again later"
        elif any(isinstance(link, OSError) and link.errno in (errno.ENOSPC, errno.EDQUOT) for link in chain):
            said = f"the disk is full at {_cache()}: make room, or point HF_HUB_CACHE at a folder on a larger disk"
        elif any(isinstance(link, PermissionError) for link in chain):
            said = f"{_cache()} cannot be written: point HF_HUB_CACHE at a folder that can"
        elif caught(errors.OfflineModeIsEnabled):
            said = f"{repo} is not on this machine and HF_HUB_OFFLINE=1 forbids fetching it: unset it, or choose another"
        elif _unreachable(chain):
            said = f"cannot reach the Hub for {repo}: check the network, or choose a model that is here"
        elif isinstance(error, OSError):
            said = f"the download of {repo} broke off ({str(error).splitlines()[0][:120]}): start it again"
        else:
            raise
        raise UsageError(said) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _unreachable(chain: list[BaseException]) -> bool:
    # The client's HTTP library changed its name between versions; its errors keep theirs.
    kinds = ("ConnectError", "ConnectTimeout", "ReadTimeout", "ReadError", "TimeoutException", "ProxyError",
             "RemoteProtocolError", "NetworkError", "PoolTimeout", "WriteError", "DryRunError",
             "LocalEntryNotFoundError", "IncompleteSnapshotError")
    names = {parent.__name__ for link in chain for parent in type(link).__mro__}
    return bool(names.intersection(kinds)) or any(isinstance(link, ConnectionError) for link in chain)
