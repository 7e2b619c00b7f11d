"""Measurements anybody can repeat, each on a throw-away database with durable settings."""
