"""`detent doctor`: what is wrong here, and what to do about it.

Checks look at this machine, the database, the cluster and the API. Stories start from what people complain about
("it ran twice") and say what was looked at, what was found and what to do. Nothing is changed and nothing is started.
"""
