"""Integrations with web frameworks. Each needs its framework installed; nothing else of detent imports them."""
