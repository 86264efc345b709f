"""``python -m specviz lens``: what every layer of a model would write at every position of a text."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import unicodedata
from pathlib import Path

from specviz.analysis.lens import LensTable, load_lens, save_lens
from specviz.commands._models import add_model_arguments
from specviz.commands._terminal import printable, wants_colour
from specviz.errors import UsageError

_CELL = 12  # columns of the terminal for one position
_GREEN, _DIM, _BOLD, _RESET = "\x1b[32m", "\x1b[2m", "\x1b[1m", "\x1b[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, draft=False)
    text = parser.add_mutually_exclusive_group()
    text.add_argument("--prompt", help="the text to look at; - reads standard input")
    text.add_argument("--prompt-file", type=Path, help="a text file")
    text.add_argument("--from", dest="saved", type=Path, metavar="FILE", help="show a table that --out wrote; no model")
    parser.add_argument("--chat", action="store_true", help="put the text into the model's chat template")
    parser.add_argument("--max-new-tokens", type=int, default=0,
                        help="let the model go on with so many tokens, and look at these too (default 0)")
    parser.add_argument("--last", type=int, default=24, help="show this many of the last positions (default 24; 12 or fewer: the figure has words in its cells)")
    parser.add_argument("--out", type=Path, help="write the whole table to this JSON file")
    parser.add_argument("--figure", type=Path, help="draw it into this HTML file, which needs no network to be opened")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(args: argparse.Namespace) -> int:
    if args.last < 1:
        raise UsageError(f"--last {args.last}: choose 1 or more")
    if args.max_new_tokens < 0:
        raise UsageError(f"--max-new-tokens {args.max_new_tokens}: choose 0 or more")
    table = load_lens(args.saved) if args.saved else _measure(args)
    if args.out:
        _write(args.out, "--out", lambda: save_lens(args.out, table))
    if args.figure:
        _write(args.figure, "--figure", lambda: _draw(args.figure, table, args.last))
    if args.json:
        print(json.dumps(table.as_dict(), ensure_ascii=False))
    else:
        shown = table.window(max(len(table.ids) - args.last, 0), len(table.ids))
        colour = wants_colour(sys.stdout)
        print("\n".join(lines(shown, shutil.get_terminal_size((100, 24)).columns, colour)))
        print("\n" + summary(table))
    return 0


def _measure(args: argparse.Namespace) -> LensTable:
    from specviz.analysis.lens import lens
    from specviz.commands._progress import Printer
    from specviz.decoding import MethodConfig, build, decode
    from specviz.models import zoo
    from specviz.models.loading import encode_prompt, load_model
    from specviz.models.streams import layer_count

    text = _text(args)
    with Printer() as progress:
        name = args.target or zoo.default_pair().target
        loaded = load_model(name, device=args.device, dtype=args.dtype, progress=progress)
    layer_count(loaded)  # says at once if this family's layers cannot be run apart
    ids = encode_prompt(loaded, text, chat=args.chat)
    prompt = len(ids)
    if args.max_new_tokens:
        for record in decode(ids, build(MethodConfig("autoregressive"), loaded), args.max_new_tokens):
            if record.kind == "iteration":
                ids = [*ids, *record.ids]
    return lens(loaded, ids, prompt=prompt)


def lines(table: LensTable, width: int, colour: bool) -> list[str]:
    """The table for a terminal, in blocks that fit its width: one column a position, the last layer on top.

    Green (without colour: a mark ``=`` before the token) is what the whole model says, dim what was given less than half
    of the probability; the number behind each token is that probability in percent.
    """
    legend = "=token: as the whole model; number: probability in percent"
    if colour:
        legend = f"{_GREEN}as the whole model{_RESET}, {_DIM}dim{_RESET}: below 50 %; number: probability in percent"
    out = [legend]
    margin = len(f"layer {table.layers}") + 2
    columns = max((width - margin) // _CELL, 1)
    equal = table.equal
    for begin in range(0, len(table.ids), columns):
        places = range(begin, min(begin + columns, len(table.ids)))
        head = "".join(_fit(table.pieces[place], _CELL - 1) + " " for place in places)
        out += ["", "behind".ljust(margin) + (f"{_BOLD}{head}{_RESET}" if colour else head).rstrip()]
        for layer in range(table.layers, 0, -1):
            cells = [
                _cell(table.text(layer, place), float(table.probabilities[layer - 1, place]),
                      bool(equal[layer - 1, place]), colour)
                for place in places
            ]
            out.append((f"layer {layer}".ljust(margin) + "".join(cells)).rstrip())
    return out


def summary(table: LensTable) -> str:
    """How early the answers are settled, in words."""
    rows = [f"exit layer {layer + 1:>{len(str(table.layers))}}  {'#' * round(20 * share):.<20} {share:>4.0%}"
            for layer, share in enumerate(table.agreement[:-1])]
    first = sorted(table.settled.tolist())[(len(table.ids) - 1) // 2]
    head = f"how often an exit says what the whole model says, of {len(table.ids)} positions"
    return "\n".join([head, *rows, f"half of all positions are settled at layer {first} of {table.layers}"])


def _cell(text: str, probability: float, same: bool, colour: bool) -> str:
    percent = f"{min(int(probability * 100 + 0.5), 99):>2}"
    mark = "" if colour else "=" if same else " "
    cell = mark + _fit(text, _CELL - 4 - len(mark)) + " " + percent
    if colour:
        style = (_GREEN if same else "") + (_DIM if probability < 0.5 else "")
        cell = f"{style}{cell}{_RESET}" if style else cell
    return cell + " "


def _fit(text: str, width: int) -> str:
    """Text in exactly so many terminal columns; spaces and line breaks are shown, wide characters count twice."""
    text = printable(text.replace(" ", "·").replace("\n", "⏎").replace("\t", "→")) or "∅"
    kept: list[str] = []
    widths: list[int] = []
    for char in text:
        widths.append(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1)
        kept.append(char)
        if sum(widths) > width:
            while sum(widths) > width - 1:
                widths.pop()
            kept = [*kept[: len(widths)], "…"]
            widths.append(1)
            break
    return "".join(kept) + " " * (width - sum(widths))


def _text(args: argparse.Namespace) -> str:
    if args.prompt_file is not None:
        try:
            return args.prompt_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise UsageError(f"--prompt-file {args.prompt_file}: {reason}; choose a text file") from None
    if args.prompt == "-":
        return sys.stdin.read()
    if args.prompt is None:
        raise UsageError("no text: give --prompt TEXT, --prompt-file FILE, or --prompt - for standard input")
    return args.prompt


def _write(path: Path, option: str, write) -> None:
    try:
        write()
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; choose a file that can be written") from None
    print(f"written to {path}", file=sys.stderr)


def _draw(path: Path, table: LensTable, last: int) -> None:
    from specviz.figures.lens import MOST_WORDS, lens

    lens(table, start=max(len(table.ids) - last, 0), words=last <= MOST_WORDS).write_html(path, include_plotlyjs=True)
