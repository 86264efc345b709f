"""The log of a decode: records, and their file format.

A trace is a header, iterations and a footer. In a file each record is one JSON object on its own line,
named by its ``kind``. This is the project's public format: it carries a schema number, files of older
schemas keep opening, unknown keys are ignored, and a broken line is reported with its number.

Standard library only, so that anything can read a trace without torch.
"""

from specviz.trace.checks import from_plain
from specviz.trace.files import (
    TraceWriter,
    parse_trace,
    read_trace,
    records_of,
    to_json,
    to_plain,
    write_trace,
)
from specviz.trace.records import (
    ENDS,
    SCHEMA,
    STOP_REASONS,
    Alternative,
    DraftToken,
    Footer,
    Header,
    Iteration,
    Record,
    TargetToken,
    Trace,
    TraceError,
)

__all__ = [
    "ENDS", "SCHEMA", "STOP_REASONS", "Alternative", "DraftToken", "Footer", "Header", "Iteration", "Record",
    "TargetToken", "Trace", "TraceError", "TraceWriter", "from_plain", "parse_trace", "read_trace", "records_of",
    "to_json", "to_plain", "write_trace",
]
