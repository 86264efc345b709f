"""See how speculative decoding works, on real models, live."""

__version__ = "0.1.0"
