"""Tenants, and the keys with which their people and programs come to the API."""

from __future__ import annotations

from typing import Literal

KeyScope = Literal["read", "work", "operate", "write", "admin"]
