"""What the page has to know before it asks anything: texts, colours, methods, pairs, the first recorded run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from specviz.decoding import METHODS, MethodConfig
from specviz.figures.theme import FONT, MONO, NEUTRALS, Look, as_plain, css_variables
from specviz.models import zoo
from specviz.ui import published, recorded, static
from specviz.ui.examples import examples
from specviz.ui.limits import LIMITS, public
from specviz.ui.requests import TWINS
from specviz.ui.shelf import Shelf
from specviz.ui.texts import CATALOGUE, LANGUAGES

# Gradio's own page brings its module graph; ours is named here so that the browser fetches it in one go.
MODULES = tuple(sorted(path.name for path in static.PAGE.glob("*.js")))


def data(shelf: Shelf) -> dict[str, Any]:
    """Everything that travels with the page."""
    return {
        "base": static.base(),
        "texts": CATALOGUE,
        "languages": list(LANGUAGES),
        "look": {
            "meanings": as_plain(),
            "neutrals": {name: {"light": light, "dark": dark} for name, (light, dark) in NEUTRALS.items()},
            "templates": {
                name: Look(dark).template.to_plotly_json() for name, dark in (("light", False), ("dark", True))
            },
            "plotly": f"{static.base()}plotly.js",
        },
        "methods": {
            name: {"parameters": list(spec.parameters), "defaults": dict(spec.defaults), "drafter": spec.drafter}
            for name, spec in METHODS.items()
        },
        "pairs": pairs(shelf),
        "twins": [name for name, twin in TWINS.items() if zoo.MODELS[twin].here or shelf.layers(twin)],
        "published": published.tables(shelf, _memory()),
        "examples": examples(),
        "limits": {"prompt": LIMITS.prompt, "upload": LIMITS.upload_bytes, "tokens": LIMITS.new_tokens},
        "typed": not public() and not shelf.fixed,  # may a visitor type the name of a model?
        "traces": recorded.catalogue(),
        "first": recorded.first(),
    }


def pairs(shelf: Shelf) -> list[dict[str, Any]]:
    """The pairs that this machine can run now, or after a download that needs no licence to be accepted."""
    found = []
    for pair in zoo.PAIRS.values():
        models = [zoo.MODELS[name] for name in (pair.target, pair.draft) if name]
        missing = [model for model in models if not model.here and shelf.layers(model.name) is None]
        if any(model.needs_token or (model.source in ("assets", "composed") and not model.shipped) for model in missing):
            continue
        missing = [model for model in missing if not model.shipped]
        if sum(model.memory(4) for model in models) > _memory() or (missing and shelf.fixed):
            continue
        found.append(described(pair, shelf) | {"fetch_bytes": sum(m.download or 2 * m.parameters for m in missing)})
    # What needs no download comes first; the zoo lists the shipped pairs before all others.
    return sorted(found, key=lambda pair: pair["fetch_bytes"] > 0)


def described(pair: zoo.Pair, shelf: Shelf) -> dict[str, Any]:
    """A pair as the form of the page needs it."""
    target = zoo.find(pair.target)
    return {
        "name": pair.name,
        "target": pair.target,
        "draft": pair.draft,
        "method": pair.method,
        "exit_layer": pair.exit_layer,
        "settings": asked_for(pair.draft),
        "title": pair.target + (f" + {pair.draft}" if pair.draft else ""),
        "layers": shelf.layers(pair.target) or layers(pair.target),
        "chat": target is None or "instruct" in target.where.lower() or pair.target == "smollm2",
        "task": pair.task,
        "fetch_bytes": 0,
    }


def asked_for(draft: str | None) -> dict[str, dict[str, Any]]:
    """The settings that a shipped draft's generation config asks for, as transformers reads it, by method."""
    entry = zoo.find(draft) if draft else None
    path = zoo.ASSETS / entry.where / "generation_config.json" if entry and entry.shipped else None
    given = json.loads(path.read_text(encoding="utf-8")) if path and path.is_file() else {}
    if not any("assistant" in key for key in given):
        return {}
    config = MethodConfig.from_generation_config(SimpleNamespace(**given))
    return {config.name: {"lookahead": config.lookahead, "threshold": config.threshold}}


def layers(name: str) -> int:
    """Layers of a model as far as its files on this machine tell; else a number that fits most."""
    entry = zoo.find(name)
    folder = zoo.ASSETS / entry.where if entry else Path(name).expanduser()
    config = folder / "config.json"
    try:
        if entry is None or entry.source == "assets":
            return int(json.loads(config.read_text(encoding="utf-8"))["num_hidden_layers"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # whoever loads it will say what is wrong
    return {"smollm2": 30, "smollm2-135m": 30, "smollm2-360m": 32}.get(name, 24)


def _memory() -> float:
    """Bytes that models may take: two thirds of what the machine has."""
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2 / 3


def head(shelf: Shelf) -> str:
    """What goes into the document's head: styles, the data, and the script that draws the page at once."""
    base = static.base()
    plain = json.dumps(data(shelf), ensure_ascii=False, separators=(",", ":"))
    safe = plain.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return "\n".join(
        [
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{variables()}</style>",
            f'<link rel="stylesheet" href="{base}page.css">',
            *(f'<link rel="modulepreload" href="{base}{name}">' for name in MODULES),
            f'<script type="application/json" id="sv-boot">{safe}</script>',
            f'<script type="module" src="{base}app.js"></script>',
        ]
    )


def variables() -> str:
    """The colour table as CSS variables, for light and for dark."""
    rules = [f":root{{--sv-font:{FONT};--sv-mono:{MONO}}}"]
    for name, dark in (("light", False), ("dark", True)):
        inner = ";".join(f"{key}:{value}" for key, value in css_variables(dark).items())
        rules.append(f'html[data-sv-theme="{name}"]{{{inner}}}')
    return "".join(rules)
