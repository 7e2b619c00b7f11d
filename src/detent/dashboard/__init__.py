"""The dashboard: pages that the server renders from templates and keeps up to date over one stream per page.

It calls the same handlers as the API, with the same caller, and reads no table directly.
"""
