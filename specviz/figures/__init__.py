"""Trace or probe in, Plotly figure out: pure functions, one theme, a table behind every figure."""
