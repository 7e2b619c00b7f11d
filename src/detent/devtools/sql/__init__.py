"""Statements of the benchmarks and of the demo."""
