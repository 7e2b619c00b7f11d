"""The queues that a node knows, and whose turn it is."""
