"""From schedules to runs: `scheduler.py` looks ahead, `wheel.py` waits, `planning.py` decides, `firing.py` fires."""
