"""Command line: ``python -m specviz COMMAND``; every command is a module of ``specviz.commands``."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
import traceback

from specviz.errors import UsageError

# name -> what it does; the module is imported only when its command is called, since some need torch.
COMMANDS = {
    "decode": "decode a prompt and show, live, what was drafted, accepted and refused",
    "replay": "show a saved run again",
    "fetch": "bring the weights of a model of the zoo to this machine",
    "lens": "show what every layer of a model would say at every position",
    "probe": "measure once what every policy and exit layer would see",
    "sweep": "run a grid of exit layers, lookaheads and thresholds, predicted and measured side by side",
    "bench": "measure methods and peers side by side",
    "train": "train small models: the LayerSkip recipe, its plain twin, a distilled draft",
}


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python -m specviz", description="See how speculative decoding works.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((word for word in argv if word in COMMANDS), None)
    modules = {}
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.add_argument("-v", "--verbose", action="store_true", help="show the traceback of an error")
        if name == chosen:
            modules[name] = importlib.import_module(f"specviz.commands.{name}")
            modules[name].add_arguments(sub)
    args = parser.parse_args(argv)
    try:
        return modules[args.command].run(args) or 0
    except UsageError as error:
        if args.verbose:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our pipe left; point stdout at nothing so that the interpreter's last flush is silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO) or args.verbose:
            raise
        print(f"error: {error.filename or 'a file'}: {error.strerror}: make room, or choose another place", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
