"""From schedules to runs: `scheduler.py` looks ahead, `upcoming.py` and `wheel.py` wait, `planning.py` decides,
`firing.py` fires, `catch_up.py` releases missed ticks."""
