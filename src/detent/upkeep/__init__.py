"""What one node does for all: retention, archive, tallies, expectations, notices, pings."""
