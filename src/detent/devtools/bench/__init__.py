"""Repeatable measurements, each on a temporary database with durable settings."""
