"""Django's own tests of task backends, from its source distribution, with our backend in the place of Django's.

No file of Django is part of this repository: `run` unpacks a distribution that pip has downloaded, and changes the
copies so that the names of Django's backends mean ours.
"""
