"""From claims to outcomes: `worker.py` takes runs in, `slots.py` and `attempt.py` execute them, `settle.py` writes
their outcomes."""
