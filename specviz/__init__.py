"""See how speculative decoding works, on real models, live.

    from specviz import MethodConfig, Trace, build, decode, encode_prompt, load_pair

The names are loaded when they are first used: reading a trace needs no torch.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "specviz.trace": ("Trace", "TraceWriter", "read_trace", "write_trace"),
    "specviz.decoding": ("FULL_DETAIL", "METHODS", "MethodConfig", "Sampling", "build", "check_run", "decode"),
    "specviz.models.loading": ("encode_prompt", "load_model", "load_pair"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str):
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'specviz' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
