"""The composition root: one process, and one membership of the cluster."""
