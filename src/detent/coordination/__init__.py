"""Who is alive and who leads what. See `membership.py` for the lease, `leadership.py` for partitions and rescue."""
