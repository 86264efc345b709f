#!/bin/sh
# Makes the recorded runs of this folder again, with the command line; each file's header holds its command.
# Run it from the repository's root, on a machine that does nothing else: the runs are replayed at their own pace.
set -e
record() {
  name=$1
  shift
  python -m specviz decode "$@" --full --out "assets/traces/$name.jsonl" > /dev/null
}
fibonacci='def fibonacci(n):
    """Return the n-th Fibonacci number."""
'
settings='import json


def load_settings(path):
    """Read settings from a JSON file."""
'
record tiny-dynamic-code --pair tiny --method dynamic --max-new-tokens 160 --prompt "$settings"
record tiny-constant-code --pair tiny --method constant --lookahead 5 --max-new-tokens 160 --prompt "$settings"
record tiny-heuristic-code --pair tiny --method heuristic --max-new-tokens 160 --prompt "$settings"
record tiny-oracle-code --pair tiny --method oracle --max-new-tokens 160 --prompt "$settings"
record tiny-early-exit-code --target tiny-layerskip --method early-exit-dynamic --exit-layer 3 --max-new-tokens 160 --prompt "$fibonacci"
record tiny-plain-early-exit-code --target tiny-plain --method early-exit-dynamic --exit-layer 3 --max-new-tokens 160 --prompt "$fibonacci"
record smollm2-lookup-list --target smollm2 --method prompt-lookup --max-new-tokens 100 --prompt "Repeat this list and add one fruit at its end: apples, pears, plums, cherries, apricots, peaches, quinces."
