"""What one node does for the whole cluster: retention, archive, tallies, deadlines, notifications, pings."""
