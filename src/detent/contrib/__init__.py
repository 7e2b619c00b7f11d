"""Detent in the frameworks of others. Each package is imported by its name only."""
