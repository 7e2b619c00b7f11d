"""Style sheets, scripts and images: read once, served with their digest, compressed if the browser accepts it."""

from __future__ import annotations

import gzip
import hashlib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
CACHE_FOREVER = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    body: bytes
    compressed: bytes
    digest: str
    media_type: str


class Assets:
    def __init__(self) -> None:
        root = resources.files("detent.dashboard").joinpath("static")
        self._assets = {name: _asset(name, file) for name, file in _files(root, "")}

    def url(self, name: str) -> str:
        """The URL of a file, with its digest, so that a browser may cache it until it changes."""
        return f"/static/{name}?v={self._assets[name].digest}"

    async def serve(self, request: Request) -> Response:
        asset = self._assets.get(request.path_params["name"])
        if asset is None:
            return PlainTextResponse("Not found", 404)
        tag = f'"{asset.digest}"'
        known = request.query_params.get("v") == asset.digest
        headers = {
            "ETag": tag,
            "Cache-Control": CACHE_FOREVER if known else "no-cache",
            "X-Content-Type-Options": "nosniff",
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        body = asset.body
        if "gzip" in request.headers.get("accept-encoding", ""):
            body = asset.compressed
            headers["Content-Encoding"] = "gzip"
        return Response(body, headers=headers, media_type=asset.media_type)


def _files(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _files(entry, f"{name}/")
        elif any(name.endswith(suffix) for suffix in TYPES):
            found.append((name, entry))
    return found


def _asset(name: str, file: Traversable) -> Asset:
    body = file.read_bytes()
    kind = TYPES[name[name.rindex(".") :]]
    return Asset(body, gzip.compress(body, 9, mtime=0), hashlib.sha256(body).hexdigest()[:16], kind)
