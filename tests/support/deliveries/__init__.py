"""Runs of topic targets under kills: who sends, what brokers hold in the end, and the rules that judge it."""
