"""From schedules to runs: `scheduler.py` loads upcoming ticks, `upcoming.py` and `wheel.py` keep them until they are
due, `planning.py` decides, `firing.py` fires, `catch_up.py` releases missed ticks."""
