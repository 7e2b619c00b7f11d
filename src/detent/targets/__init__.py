"""Targets: what a run calls. Each kind has a runner that turns a `Call` into an `Outcome`."""
