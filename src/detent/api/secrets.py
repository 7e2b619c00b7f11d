"""Routes about the secrets of a tenant. Values only ever go in: no answer has one."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api, check_default_tenant
from detent.api.routing import Routes
from detent.contract.page import Page
from detent.contract.secret import RewrappedSecrets, Secret
from detent.domain.refusal import shown
from detent.domain.secret_ref import is_reference_name, provider_of
from detent.errors import UsageError

routes = Routes(PREFIX)

LONGEST_KEEP = 31_536_000


class SecretValue(Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a secret: text of 6 characters to 64 KiB. It is not shown again."""

    confidential: ClassVar[bool] = True
    value: Any  # checked by the use case, whose sentence does not show it

    def __repr__(self) -> str:
        return "SecretValue()"


class SecretRotation(Struct, frozen=True, forbid_unknown_fields=True):
    """A new value. Calls are signed with the former ones, too, for `keep_seconds`."""

    confidential: ClassVar[bool] = True
    value: Any
    keep_seconds: Annotated[float, Meta(ge=0, le=LONGEST_KEEP)] = 0

    def __repr__(self) -> str:
        return "SecretRotation()"


@routes.get("/secrets")
async def list_secrets(api: Api) -> Page[Secret]:
    """List the secrets by name, without their values."""
    return Page(await api.secrets.all(api.tenant), None)


@routes.get("/secrets/{name}")
async def get_secret(api: Api, name: str) -> Secret:
    """Get what is known about a secret; never its value."""
    return await api.secrets.get(api.tenant, name)


@routes.put("/secrets/{name}", scope="write")
async def set_secret(api: Api, name: str, body: SecretValue) -> Secret:
    """Create a secret, or replace its value; the former value is gone at once."""
    _check_name(name)
    return await api.secrets.set(api.tenant, name, body.value, by=api.by)


@routes.post("/secrets/{name}/rotate", scope="write")
async def rotate_secret(api: Api, name: str, body: SecretRotation) -> Secret:
    """Give a secret a new value; calls are signed with the former ones, too, for a while."""
    keep = timedelta(seconds=body.keep_seconds)
    return await api.secrets.rotate(api.tenant, name, body.value, keep, by=api.by)


@routes.delete("/secrets/{name}", scope="write")
async def delete_secret(api: Api, name: str) -> None:
    """Delete a secret that no job refers to."""
    await api.secrets.delete(api.tenant, name)


@routes.post("/secret-keys/rotate", scope="admin")
async def rotate_secret_key(api: Api) -> RewrappedSecrets:
    """Put some of the secrets under the newest secret key of this server; repeat until none remains."""
    check_default_tenant(api, "Secret keys are managed")
    return await api.secrets.rewrap()


def _check_name(name: str) -> None:
    if not is_reference_name(name) or provider_of(name)[0] != "stored":
        raise UsageError(
            f"The name is {shown(name)}: use letters, digits, dots, hyphens and underscores, at most 100, such as "
            "payments-key.",
            "/name",
        )
