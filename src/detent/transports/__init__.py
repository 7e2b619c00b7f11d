"""Brokers that carry offers from schedulers to workers, beside the queue in PostgreSQL."""
