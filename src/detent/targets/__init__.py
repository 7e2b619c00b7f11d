"""Targets: what a run does. Each kind has a runner that turns a `Call` into an `Outcome`.

Only the checks are exported here, because registration needs them without the clients: import a runner from
its own module.
"""

from detent.targets.checks import check_target
from detent.targets.errors import TargetError

__all__ = ["TargetError", "check_target"]
