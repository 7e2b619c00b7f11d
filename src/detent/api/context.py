"""What every route gets: the parts of the server, and the caller.

Every verb that reads or changes rows of a tenant is called with `tenant=api.tenant`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from detent.api.access_watch import AccessWatch
from detent.api.auth import ANONYMOUS, Caller, KeyAuthenticator
from detent.api.callbacks import CallbackAuthenticator
from detent.api.log_streams import LogStreams
from detent.api.pull_waiters import PullWaiters
from detent.api.refusals import RefusalRecorder
from detent.cluster.operations import ClusterOperations
from detent.errors import NotAuthorised
from detent.jobs import JobOperations
from detent.jobs.secrets import SecretCommands
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.jobs import DEFAULT_TENANT
from detent.telemetry.health import Check
from detent.worker.pull import PulledRuns
from detent.worker.secrets import SecretValues

PREFIX = "/api/v1"
Readiness = Callable[[], Awaitable[Mapping[str, Check]]]


@dataclass(frozen=True, slots=True)
class Api:
    store: Store
    jobs: JobOperations
    cluster: ClusterOperations
    settings: Settings
    readiness: Readiness
    authenticator: KeyAuthenticator
    access: AccessWatch
    waiters: PullWaiters
    pulled: PulledRuns
    secrets: SecretCommands
    secret_values: SecretValues
    refusals: RefusalRecorder
    streams: LogStreams
    callbacks: CallbackAuthenticator
    caller: Caller = ANONYMOUS

    @property
    def tenant(self) -> int:
        """The tenant of this request. It comes only from the key, never from the path or the body."""
        return self.caller.tenant

    @property
    def by(self) -> str:
        """The name of the caller, recorded with what it changes."""
        return self.caller.by

    @property
    def max_body_bytes(self) -> int:
        return self.settings.max_payload_bytes + 65_536


def check_default_tenant(api: Api, what: str) -> None:
    """Refuse requests about all tenants from other tenants; `what` begins the sentence."""
    if api.tenant != DEFAULT_TENANT:
        raise NotAuthorised(f"{what} with a key of the default tenant that has the scope admin: use such a key.")
