"""A Celery app as others have it, its own workers, and the brokers they use."""
