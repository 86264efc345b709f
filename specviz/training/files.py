"""Files that are either the old ones or the new ones, never half of both."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from specviz.errors import UsageError


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Call ``write`` with a temporary file beside ``path``, then put it in the place of ``path`` in one step.

    A failure leaves the old file as it was and no temporary one. A full disk raises UsageError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        raise full_disk(path, error) or error from None


def full_disk(path: Path, error: BaseException) -> UsageError | None:
    """The UsageError for ``error`` if it says that the disk is full. torch hides the errno in its message."""
    number = getattr(error, "errno", None)
    words = str(error)
    if number in (errno.ENOSPC, errno.EDQUOT) or "No space left" in words or "PytorchStreamWriter failed" in words:
        return UsageError(
            f"{path}: the disk is full; free some space or choose another folder with --out, then use --resume"
        )
    return None


def replace_folder(folder: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` with an empty folder beside ``folder``, then put it in its place. UsageError when the disk is full."""
    new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        write(new)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise full_disk(folder, error) or error from None
    shutil.rmtree(old, ignore_errors=True)
