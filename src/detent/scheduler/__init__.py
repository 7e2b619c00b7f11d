"""From schedules to runs: `window.py` looks ahead, `wheel.py` waits, `firing.py` fires."""
