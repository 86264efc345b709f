"""Example prompts of the form, by task, suited to what each model was trained for."""

from __future__ import annotations

_CODE = 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'
_DEFAULT = {
    "open-ended": "Explain in a few sentences why the sky is blue.",
    "summarisation": (
        "Summarise in two sentences: The harbour of the small town was built for sailing ships. When steamers came, "
        "the quays were too short and the water too shallow, so the merchants moved to the city down the coast. The "
        "town kept its narrow streets and its fishermen, and today visitors come to see the harbour that nobody "
        "could use."
    ),
    "code": "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
}


def examples() -> dict[str, dict[str, str]]:
    """Pair name -> task -> prompt; "default" stands for every pair that is not named."""
    tiny = {"code": _CODE}
    return {"default": _DEFAULT, "tiny": tiny, "tiny-exit": tiny}
