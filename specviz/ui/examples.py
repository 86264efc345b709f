"""Example prompts of the form, by task, suited to what each model was trained for; from the shipped prompt sets."""

from __future__ import annotations

from functools import cache

from specviz.analysis.prompts import SETS, load_prompts

# Models that continue code and know nothing else; all others of the list are chat models.
CODE_ONLY = ("tiny", "tiny-exit")
CODE_EXAMPLES = 4


@cache
def examples() -> dict[str, dict[str, str]]:
    """Pair name -> task -> prompt; "default" stands for every pair that is not named."""
    first = {name: load_prompts(name, "instruction")[0].text for name in SETS}
    prefixes = load_prompts("code", "prefix")[:CODE_EXAMPLES]
    code = {f"code.{number}": prompt.text for number, prompt in enumerate(prefixes, 1)}
    return {"default": first, **dict.fromkeys(CODE_ONLY, code)}
