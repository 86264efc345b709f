"""Inputs are checked before Plotly sees them: a wrong shape names itself instead of drawing nonsense."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def frame(data: object, where: str, columns: Sequence[str], shares: Sequence[str] = ()) -> pd.DataFrame:
    """A copy of a DataFrame that has the columns, as numbers where they hold numbers, and shares within 0..1.

    Anything that pandas makes a DataFrame of is taken (a list of dicts, a dict of lists).
    """
    table = data.copy() if isinstance(data, pd.DataFrame) else pd.DataFrame(data)
    missing = [column for column in columns if column not in table.columns]
    if missing and len(table.columns) + len(table):
        raise ValueError(f"{where}: no column {', '.join(missing)}; needed are {', '.join(columns)}")
    for column in missing:  # no rows and no columns: nothing to draw yet
        table[column] = pd.Series(dtype=float)
    for column in shares:
        if column in table.columns:
            share(table[column], f"{where}: {column}")
    return table.reset_index(drop=True)


def share(values: object, where: str) -> np.ndarray:
    """(n,) numbers between 0 and 1; NaN is allowed (not measured)."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 1:
        raise ValueError(f"{where} has shape {array.shape}, one dimension is needed")
    bad = array[(array < 0) | (array > 1 + 1e-6)]
    if bad.size:
        raise ValueError(f"{where} holds {bad[0]:g}, numbers between 0 and 1 are needed")
    return array


def unique(table: pd.DataFrame, where: str, columns: Sequence[str]) -> None:
    """Every combination of these columns occurs once."""
    twice = table[table.duplicated(list(columns))]
    if len(twice):
        row = ", ".join(f"{column}={twice[column].iloc[0]}" for column in columns)
        raise ValueError(f"{where}: {row} occurs more than once")


def same_length(where: str, **arrays: Sequence) -> None:
    """All of these have as many entries."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{where}: " + ", ".join(f"{count} {name}" for name, count in lengths.items()))
