"""Attacks that were possible once, and promises that docs/security.md makes: each test is named by what it refuses."""
