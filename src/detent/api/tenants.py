"""Routes about tenants, their quotas and their allow lists. Administrators of the default tenant manage all tenants;
those of another tenant see its quotas and its list, and cannot change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from detent.api.context import PREFIX, Api, check_default_tenant
from detent.api.cursors import after_tenant, binding, read_after_tenant
from detent.api.jobs import Limit
from detent.api.routing import Routes
from detent.contract.page import Page
from detent.contract.tenant import Tenant
from detent.domain.job import TopicTarget
from detent.domain.registration import check_dead_letter_topic
from detent.domain.secret_ref import SecretName
from detent.domain.target_patterns import MAX_PATTERNS, PatternError, read_pattern
from detent.errors import UsageError
from detent.store.keys import TenantName
from detent.store.secrets import MissingSecrets

routes = Routes(PREFIX)

LARGEST = 2_147_483_647
LARGEST_STORAGE = 1 << 50
MANAGED = "Other tenants are managed"
# What an administrator of the tenant itself may change.
OWN_FIELDS = {"signing", "dead_letter_topic"}
ALLOW_FIELDS = ("allow_targets", "allow", "disallow")

Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Bytes = Annotated[int, Meta(ge=1, le=LARGEST)]
StorageBytes = Annotated[int, Meta(ge=1, le=LARGEST_STORAGE)]
Rate = Annotated[float, Meta(ge=0.001, le=1_000_000)]
Weight = Annotated[int, Meta(ge=1, le=100)]
Pattern = Annotated[str, Meta(min_length=1, max_length=300)]
Patterns = Annotated[list[Pattern], Meta(max_length=MAX_PATTERNS)]


class TenantSpec(Struct, frozen=True, forbid_unknown_fields=True):
    name: TenantName


class TenantPatch(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """New quotas of a tenant, and changes of its allow list. A quota that is left out stays; null removes it. A tenant
    that has more jobs than its new quota keeps them. `allow_targets` replaces the whole list; `allow` adds patterns to
    it, `disallow` removes some. `signing` is the secret that signs the HTTP calls of its jobs; null: none does.
    `dead_letter_topic` gets the dead runs of its jobs that have no such topic themselves; null: none does."""

    max_jobs: Count | UnsetType | None = UNSET
    max_payload_bytes: Bytes | UnsetType | None = UNSET
    max_concurrent: Count | UnsetType | None = UNSET
    max_runs_per_second: Rate | UnsetType | None = UNSET
    max_storage_bytes: StorageBytes | UnsetType | None = UNSET
    requests_per_second: Rate | UnsetType | None = UNSET
    weight: Weight | UnsetType = UNSET
    allow_targets: Patterns | UnsetType = UNSET
    allow: Patterns | UnsetType = UNSET
    disallow: Patterns | UnsetType = UNSET
    signing: SecretName | UnsetType | None = UNSET
    dead_letter_topic: TopicTarget | UnsetType | None = UNSET


class TenantQuery(Struct, forbid_unknown_fields=True):
    cursor: str | None = None
    limit: Limit = 50


@routes.post("/tenants", status=201, scope="admin")
async def create_tenant(api: Api, body: TenantSpec) -> Tenant:
    """Create a tenant: its jobs, runs and keys are invisible to other tenants."""
    check_default_tenant(api, MANAGED)
    return await api.store.tenants.add(body.name)


@routes.get("/tenants", scope="admin")
async def list_tenants(api: Api, query: TenantQuery) -> Page[Tenant]:
    """List the tenants in the order of their creation."""
    check_default_tenant(api, MANAGED)
    bound = binding(api.tenant, query)
    tenants, following = await api.store.tenants.list(after=read_after_tenant(query.cursor, bound), limit=query.limit)
    return Page(tenants, None if following is None else after_tenant(following, bound))


@routes.get("/tenants/{name}", scope="admin")
async def get_tenant(api: Api, name: str) -> Tenant:
    """Get a tenant with its quotas."""
    if await api.store.tenants.number(name) != api.tenant:
        check_default_tenant(api, MANAGED)
    return await api.store.tenants.get(name)


@routes.patch("/tenants/{name}", scope="admin")
async def change_tenant(api: Api, name: str, body: TenantPatch) -> Tenant:
    """Change the quotas of a tenant, the addresses that its jobs may call, or the secret that signs its calls.

    The last one can be changed by an administrator of that tenant as well.
    """
    given = {field: value for field, value in msgspec.structs.asdict(body).items() if value is not UNSET}
    if isinstance(body.dead_letter_topic, TopicTarget):
        check_dead_letter_topic(body.dead_letter_topic)
    if not given.keys() <= OWN_FIELDS or await api.store.tenants.number(name) != api.tenant:
        check_default_tenant(api, "Quotas and allow lists are changed")
    lists = {field: _normal(given.pop(field), field) for field in ALLOW_FIELDS if field in given}
    edit = partial(_edited, name, lists) if lists else None
    try:
        return await api.store.tenants.change(name, given, edit, api.by)
    except MissingSecrets as error:
        missing = min(error.names)
        raise UsageError(
            f"The tenant {name!r} has no secret {missing!r}: create it with `detent secret set {missing}` and a key of "
            "that tenant.",
            "/signing" if given.get("signing") == missing else "/dead_letter_topic",
        ) from error


def _normal(patterns: Sequence[str], field: str) -> list[str]:
    """The patterns in their normal form, each once."""
    found: dict[str, None] = {}
    for position, text in enumerate(patterns):
        try:
            found[read_pattern(text).text] = None
        except PatternError as error:
            raise UsageError(str(error), f"/{field}/{position}") from error
    return list(found)


def _edited(tenant: str, lists: Mapping[str, Sequence[str]], before: Sequence[str]) -> list[str]:
    kept = lists.get("allow_targets", before)
    for position, pattern in enumerate(gone := lists.get("disallow", ())):
        if pattern not in kept:
            there = ", ".join(kept) or "nothing"
            raise UsageError(f"{pattern} is not in the list of {tenant}, which has {there}.", f"/disallow/{position}")
    after = list(dict.fromkeys([*(pattern for pattern in kept if pattern not in gone), *lists.get("allow", ())]))
    if len(after) > MAX_PATTERNS:
        raise UsageError(
            f"The list of {tenant} would have {len(after)} patterns, and {MAX_PATTERNS} is the limit: use networks, "
            "or names with *.",
            "/allow",
        )
    return after
