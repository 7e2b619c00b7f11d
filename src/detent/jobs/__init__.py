"""Use cases on top of the store: what orchestrates several statements into one change of a job."""
