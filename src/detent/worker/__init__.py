"""From claims to outcomes: `worker.py` holds runs, `execute.py` runs one, `settle.py` writes what became of it."""
