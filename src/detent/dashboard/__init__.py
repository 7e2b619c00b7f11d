"""The dashboard: pages made on the server from templates, kept up to date over one stream per page.

It calls the same handlers and verbs as the API, as the same caller, and reads no table of its own accord.
"""
