"""The archive of history that is about to be dropped: one compressed file of JSON lines for each table and day.

A file is written under a temporary name in the same folder, and renamed when it is complete and on disk: a file with
its final name is complete. Object storage shows only complete objects, so the file is written locally and uploaded,
under the condition that there is none of its name: of two nodes that archive the same day, one wins, and nothing is
overwritten.
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
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from detent.domain.target_access import OPERATOR
from detent.errors import Unavailable, UsageError
from detent.targets.messenger import check_address

LEVEL = 6
ENDING = ".jsonl.gz"
READ_AT_ONCE = 1 << 20
# A larger file is uploaded in parts, for which there is no condition.
LARGEST_PUT = 64 << 20
NO_CONDITIONS = "501 Not Implemented"
# A server that is away is asked again with the next turn.
RETRIES = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}


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

    async def publish(self, path: Path, name: str, sha256: str) -> str:
        """Give the file its final name; returns its location."""
        ...


class Folder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def workspace(self, name: str) -> Path:
        folder = (self._root / name).parent
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def publish(self, path: Path, name: str, sha256: str) -> str:
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
            open_url: Any = obstore.store.from_url
            remote = urlsplit(url).scheme not in ("file", "memory")
            self._store: Any = open_url(url, **({"retry_config": RETRIES} if remote else {}))
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise UsageError(f"archive_url is {url!r}, which cannot be used ({reason}): give another.") from error

    def workspace(self, name: str) -> Path:
        return Path(tempfile.gettempdir())

    async def publish(self, path: Path, name: str, sha256: str) -> str:
        import obstore

        size = (await asyncio.to_thread(path.stat)).st_size
        await check_addresses(self._url)
        try:
            final = await self._put(path, name, sha256, size)
            found = (await obstore.head_async(self._store, final))["size"]
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise Unavailable(f"The archive {self._url} did not accept {name} ({reason}).") from error
        if found != size:
            raise Unavailable(f"The archive {self._url} has {found} of {size} bytes of {final}.")
        await asyncio.to_thread(path.unlink)
        return f"{self._url}/{final}"

    async def _put(self, path: Path, name: str, sha256: str, size: int) -> str:
        """Upload the file; returns its name. Where its content is part of the name, an object of that name is the same
        file, so nothing is lost if it is written again."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, GenericError, NotSupportedError

        if size <= LARGEST_PUT:
            try:
                await obstore.put_async(self._store, name, path, mode="create")
                return name
            except NotSupportedError:  # such as a plain web server
                pass
            except GenericError as error:  # S3 of older servers; the library has no class for it
                if NO_CONDITIONS not in str(error):
                    raise
            except AlreadyExistsError:  # of another node, or of this one before it was stopped
                if await self._digest(name) == sha256:
                    return name
        by_content = _named_by_content(name, sha256)
        await obstore.put_async(self._store, by_content, path)
        return by_content

    async def _digest(self, name: str) -> str:
        import obstore

        digest = hashlib.sha256()
        async for chunk in (await obstore.get_async(self._store, name)).stream(READ_AT_ONCE):
            digest.update(chunk)
        return digest.hexdigest()


def _named_by_content(name: str, sha256: str) -> str:
    """`attempts/attempts_20260131.18.jsonl.gz` becomes `attempts/attempts_20260131.18.0123456789ab.jsonl.gz`."""
    return f"{name.removesuffix(ENDING)}.{sha256[:12]}{ENDING}"


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
        return Archived(await place.publish(path, name, digest), rows, digest)
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
