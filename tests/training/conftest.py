"""A corpus and a model small enough to train in a second."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specviz.training.config import LAYERSKIP, ModelShape
from specviz.training.corpus import prepare
from specviz.training.recipe import Recipe

SMALL = replace(
    LAYERSKIP,
    shape=ModelShape(layers=4, hidden=32, intermediate=64, heads=2, vocabulary=320),
    recipe=Recipe(dropout=0.3, exits=True, exit_power=0.5, exit_rows=0.5, rotation=2),
    stdlib=False,
    tokens=30 * 256,
    batch_tokens=256,
    contexts=((0.5, 32), (1.0, 64)),
    warmup_steps=5,
    learning_rate=1e-2,
    evaluate_every=10 * 256,
)


def write_package(root, files: int = 120) -> None:
    """A package of small regular modules."""
    root.mkdir()
    for index in range(files):
        lines = [f'"""Module {index}."""', "", "import os", "", ""]
        for number in range(6):
            lines += [
                f"def value_{'abcdef'[number]}_{index}(first, second):",
                "    if first:",
                "        for item in second:",
                f"            print(item, 'x{'xyz'[index % 3]}')",
                "    return first",
                "",
                "",
            ]
        (root / f"module_{index}.py").write_text("\n".join(lines))


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus") / "package"
    write_package(root)
    return root


@pytest.fixture(scope="session")
def corpus(package, tmp_path_factory):
    return prepare([package], SMALL.shape.vocabulary, tmp_path_factory.mktemp("cache"), stdlib=False)


@pytest.fixture(scope="session")
def small(package):
    """The settings of a run of 30 steps."""
    return replace(SMALL, corpus=(str(package),))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
