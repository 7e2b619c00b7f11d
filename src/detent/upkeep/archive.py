"""The archive of history that is about to be dropped: one compressed file of JSON lines for each table and day.

A file is written under a temporary name in the same folder, and renamed when it is complete and on disk: a file with
its final name is complete. Object storage shows only complete objects, so the file is written locally and uploaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from detent.domain.target_access import OPERATOR
from detent.errors import Unavailable, UsageError
from detent.targets.messenger import check_address

LEVEL = 6
READ_AT_ONCE = 1 << 20


class Archived(NamedTuple):
    """A complete file: its location, its number of rows, and the digest of its bytes."""

    location: str
    rows: int
    sha256: str


class ArchiveLocation(Protocol):
    """A folder, or a bucket."""

    def workspace(self, name: str) -> Path:
        """The folder in which the file of this name is to be written."""
        ...

    async def publish(self, path: Path, name: str) -> str:
        """Give the file its final name; returns its location."""
        ...


class Folder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def workspace(self, name: str) -> Path:
        folder = (self._root / name).parent
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def publish(self, path: Path, name: str) -> str:
        final = self._root / name
        await asyncio.to_thread(self._rename, path, final)
        return str(final)

    def _rename(self, path: Path, final: Path) -> None:
        path.replace(final)
        descriptor = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Bucket:
    def __init__(self, url: str) -> None:
        check_host(url)
        try:
            import obstore.store
        except ImportError as error:
            raise UsageError(
                f"archive_url is {url!r}, and object storage needs an extra: pip install 'detent[archive]'."
            ) from error
        self._url = url.rstrip("/")
        try:
            self._store: Any = obstore.store.from_url(url)
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise UsageError(f"archive_url is {url!r}, which cannot be used ({reason}): give another.") from error

    def workspace(self, name: str) -> Path:
        return Path(tempfile.gettempdir())

    async def publish(self, path: Path, name: str) -> str:
        import obstore

        size = (await asyncio.to_thread(path.stat)).st_size
        await check_addresses(self._url)
        try:
            await obstore.put_async(self._store, name, path)
            found = (await obstore.head_async(self._store, name))["size"]
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise Unavailable(f"The archive {self._url} did not accept {name} ({reason}).") from error
        if found != size:
            raise Unavailable(f"The archive {self._url} has {found} of {size} bytes of {name}.")
        await asyncio.to_thread(path.unlink)
        return f"{self._url}/{name}"


def check_host(url: str) -> None:
    """An archive on a web server follows the rules of all addresses of the operator. The buckets of cloud providers are
    addressed by the provider's own library, which may ask the metadata service for credentials."""
    if urlsplit(url).scheme.lower() in ("http", "https"):
        check_address("archive_url", url)


async def check_addresses(url: str) -> None:
    """The library makes its own connections, so the addresses of a name are checked before each file."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https"):
        return
    port = parts.port or (443 if parts.scheme.lower() == "https" else 80)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Unavailable(f"The archive {parts.hostname} could not be resolved ({error.strerror}).") from error
    for *_, address in found:
        fault = OPERATOR.fault(str(address[0]), port, parts.hostname or "")
        if fault is not None:
            raise Unavailable(f"The archive was not called: {fault.reason}.")


def open_archive(url: str | None) -> ArchiveLocation | None:
    """The location that the setting `archive_url` names."""
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Folder(Path(unquote(parts.path)))
    return Bucket(url) if parts.scheme else Folder(Path(url).expanduser())


async def write(place: ArchiveLocation, name: str, chunks: AsyncIterator[Sequence[str]]) -> Archived:
    """Write one compressed line per row, and publish the file under this name; an incomplete file is removed."""
    path = await asyncio.to_thread(_temporary, place, name)
    try:
        rows = 0
        with path.open("wb") as raw:
            packed = gzip.GzipFile("", "wb", LEVEL, raw, mtime=0)
            async for chunk in chunks:
                rows += len(chunk)
                await asyncio.to_thread(packed.write, "".join(f"{line}\n" for line in chunk).encode())
            await asyncio.to_thread(_finish, packed, raw)
        digest = await asyncio.to_thread(sha256_of, path)
        return Archived(await place.publish(path, name), rows, digest)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def _temporary(place: ArchiveLocation, name: str) -> Path:
    descriptor, path = tempfile.mkstemp(".part", f".{Path(name).name}.", place.workspace(name))
    os.close(descriptor)
    return Path(path)


def _finish(packed: gzip.GzipFile, raw: Any) -> None:
    packed.close()
    raw.flush()
    os.fsync(raw.fileno())


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
