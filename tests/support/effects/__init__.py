"""Handlers with a ledger, in processes that are killed: the app, the driver, and what must hold."""
