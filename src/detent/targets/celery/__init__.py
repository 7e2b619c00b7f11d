"""Celery targets: one task per attempt, sent with Celery's own client and executed by the workers of its app.

`runner.py` is on the node's loop. Everything of Celery happens in `link.py`: a thread for each broker, which sends in
batches and follows results. `guarded.py` is the client for a broker that a job names, `app_client.py` the one for an
app that the operator loaded.
"""
