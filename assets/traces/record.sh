#!/bin/sh
# Makes the recorded runs of this folder again, with the command line; each file's header holds its command.
# Run it from the repository's root, on a machine that does nothing else: the runs are replayed at their own pace.
set -e
record() {
  name=$1
  shift
  python -m specviz decode "$@" --full --out "assets/traces/$name.jsonl" > /dev/null
}
# The page's own first example: its guesses are now right, now wrong, so that every fate is seen.
even='def is_even(number: int) -> bool:
    """Return True if the number is even."""'
# Models as small as these are fastest on one core.
export OMP_NUM_THREADS=1
record tiny-constant-code --pair tiny --method constant --lookahead 5 --prompt "$even" --max-new-tokens 128
record tiny-dynamic-code --pair tiny --method dynamic --prompt "$even" --max-new-tokens 128
record tiny-early-exit-code --target tiny-layerskip --method early-exit-dynamic --exit-layer 4 --prompt "$even" --max-new-tokens 128
unset OMP_NUM_THREADS
record smollm2-lookup-list --target smollm2 --method prompt-lookup --max-new-tokens 100 --prompt "Repeat this list and add one fruit at its end: apples, pears, plums, cherries, apricots, peaches, quinces."
summary=$(python -c "from specviz.analysis.prompts import load_prompts; print(load_prompts('summarisation', 'instruction')[0].text)")
record smollm2-lookup-summary --target smollm2 --method prompt-lookup --max-new-tokens 100 --prompt "$summary"
record smollm2-draft-leaves --pair smollm2-draft --max-new-tokens 100 --prompt "Explain to a child why leaves change their colour in autumn."
