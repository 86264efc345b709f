"""The decoding core: a generator of records, and the methods it runs."""

from specviz.decoding.check import Check, check_run
from specviz.decoding.decode import decode
from specviz.decoding.methods import METHODS, Method, MethodConfig, build
from specviz.decoding.sampling import FULL_DETAIL, Detail, Sampling

__all__ = [
    "FULL_DETAIL", "METHODS", "Check", "Detail", "Method", "MethodConfig", "Sampling", "build", "check_run", "decode",
]
