"""Accepted runs whose targets report early, late, doubled and forged, while nodes are killed."""
