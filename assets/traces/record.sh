#!/bin/sh
# Makes the recorded runs of this folder again, with the command line; each file's header holds its command.
# Run it from the repository's root, on a machine that does nothing else: the runs are replayed at their own pace.
set -e
mkdir -p assets/traces/plain
# record NAME "METHOD'S ARGUMENTS" OTHER ARGUMENTS
record() {
  name=$1
  method=$2
  shift 2
  python -m specviz decode "$@" $method --full --out "assets/traces/$name.jsonl" > /dev/null
  # What the run is compared with: the target alone, as detailed.
  python -m specviz decode "$@" --method autoregressive --full --out "assets/traces/plain/$name.jsonl" > /dev/null
}
# The first example of the page's form: its guesses are now right, now wrong, so that every fate is seen.
even='def is_even(number: int) -> bool:
    """Return True if the number is even."""'
# Models as small as these are fastest on one core.
export OMP_NUM_THREADS=1
record tiny-constant-code "--method constant --lookahead 5" --pair tiny --prompt "$even" --max-new-tokens 128
record tiny-dynamic-code "--method dynamic" --pair tiny --prompt "$even" --max-new-tokens 128
record tiny-early-exit-code "--method early-exit-dynamic --exit-layer 4" --target tiny-layerskip --prompt "$even" --max-new-tokens 128
unset OMP_NUM_THREADS
record smollm2-lookup-list "--method prompt-lookup" --target smollm2 --max-new-tokens 100 --prompt "Repeat this list and add one fruit at its end: apples, pears, plums, cherries, apricots, peaches, quinces."
summary=$(python -c "from specviz.analysis.prompts import load_prompts; print(load_prompts('summarisation', 'instruction')[0].text)")
record smollm2-lookup-summary "--method prompt-lookup" --target smollm2 --max-new-tokens 100 --prompt "$summary"
record smollm2-draft-leaves "" --pair smollm2-draft --max-new-tokens 100 --prompt "Explain to a child why leaves change their colour in autumn."
# The page opens with this one.
record smollm2-draft-fox "" --pair smollm2-draft --max-new-tokens 100 --prompt "Tell me a short story about a fox who wanted to fly."
