"""Roles that are bound to keys, people and groups of people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from detent.contract.role_binding import RoleBinding, RoleBindingSpec
from detent.domain.audit_event import NewEvent
from detent.domain.roles import BoundRole
from detent.errors import KeyNotFound, RoleAlreadyBound, RoleBindingNotFound
from detent.store import sql
from detent.store.audit_log import record
from detent.store.connection import Connection
from detent.store.db import Database, PoolName, Row

BindingPage = tuple[list[RoleBinding], int | None]


class TenantRoles(NamedTuple):
    """The roles of a person in one tenant."""

    tenant: int
    name: str
    bindings: tuple[BoundRole, ...]


Memberships = list[TenantRoles]


class RoleBindingStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, spec: RoleBindingSpec, *, tenant: int, by: str) -> RoleBinding:
        subject = (tenant, spec.subject_kind, spec.subject)

        async def work(connection: Connection) -> Row:
            if spec.subject_kind == "key" and not await connection.fetch(sql.key.LIST.text, tenant, 0, 1, spec.subject):
                raise KeyNotFound(spec.subject)
            added = await connection.fetch(sql.role_binding.ADD.text, *subject, spec.role, spec.queue, spec.tag, by)
            if not added:
                raise RoleAlreadyBound(spec.subject_kind, spec.subject)
            number = added[0]["binding"]
            (row,) = await connection.fetch(sql.role_binding.LIST.text, tenant, 0, 1, number)
            event = NewEvent("role.bind", tenant, spec.subject_kind, spec.subject, after=_facts(row))
            await record(connection, event)
            return row

        row: Row = await self._database.transaction(PoolName.REQUEST, work)
        return _binding(row)

    async def remove(self, number: int, *, tenant: int) -> None:
        async def work(connection: Connection) -> None:
            removed = await connection.fetch(sql.role_binding.REMOVE.text, tenant, number)
            if not removed:
                raise RoleBindingNotFound(number)
            (row,) = removed
            event = NewEvent("role.unbind", tenant, row["subject_kind"], row["subject"], before=_facts(row))
            await record(connection, event)

        await self._database.transaction(PoolName.REQUEST, work)

    async def list(self, *, tenant: int, after: int = 0, limit: int = 50) -> BindingPage:
        """In order of creation, and the value to pass as `after` for the next page (None: the last one)."""
        rows = await self._database.fetch(PoolName.REQUEST, sql.role_binding.LIST, tenant, after, limit + 1, None)
        return [_binding(row) for row in rows[:limit]], rows[limit - 1]["id"] if len(rows) > limit else None

    async def of_person(self, names: Sequence[str], groups: Sequence[str]) -> Memberships:
        """The tenants in which a person has a role. `names`: how the provider calls the person."""
        found: dict[int, TenantRoles] = {}
        rows = await self._database.fetch(PoolName.REQUEST, sql.role_binding.LIST_OF_PERSON, list(names), list(groups))
        for row in rows:
            known = found.get(row["tenant"]) or TenantRoles(row["tenant"], row["tenant_name"], ())
            binding = BoundRole(row["role"], row["queue"], row["tag"])
            found[row["tenant"]] = known._replace(bindings=(*known.bindings, binding))
        return list(found.values())


def _binding(row: Row) -> RoleBinding:
    return RoleBinding(**{name: row[name] for name in RoleBinding.__struct_fields__})


def _facts(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("role", "queue", "tag") if row[name] is not None}
