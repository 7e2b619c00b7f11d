"""Hints between nodes: a job changed, runs are ready. Losing one costs time, never a run."""
