"""What a process reports about itself: logs, metrics, traces, health."""
