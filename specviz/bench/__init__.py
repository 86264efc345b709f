"""Methods and peers side by side: interleaved runs, medians, ratios with intervals, and the sources' own numbers."""
