"""`detent doctor`: find problems, and say what to do about them.

Checks examine this host, the database, the cluster and the API. Complaints start from a symptom ("it ran twice"), and
report what was checked, what was found and what to do. Nothing is changed and nothing is started.
"""
