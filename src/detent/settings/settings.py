"""All settings, read once at start: flags, then `DETENT_*`, then a context, then `detent.toml`, then the defaults.

Nothing is ignored silently. A key or variable that detent does not know is an error that offers the nearest
name it does know, a value that does not fit is an error that names where it was read, and every value keeps
its origin, so that `detent doctor` can say why a setting is what it is. `DETENT_TEST_*` belongs to the test
suite and is the one prefix that is passed over.

A setting is declared once, as a field of `Settings`: its type, its default, the function that reads it from
text or from a TOML value, and the words that finish the sentence "give …" when that function refuses.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.settings.files import secret_in, settings_in
from detent.settings.readers import (
    Reader,
    archive,
    base_url,
    callback,
    celery_apps,
    choice,
    coordinator,
    names,
    networks,
    or_auto,
    path,
    patterns,
    queue,
    seconds,
    secret_keys,
    switch,
    tenants,
    text,
    url,
    whole,
    zero_or_seconds,
)

CONFIG_FILE = "detent.toml"
PREFIX = "DETENT_"
FOREIGN_PREFIX = "DETENT_TEST_"
IN_FILE = "api_url in "
# What is for the server at `api_url` alone: no key is sent to a server it was not given for.
OF_SERVER = frozenset({"api_key", "ca_file", "client_cert", "client_key"})

_PEM_CERTIFICATE = "a file with a certificate in PEM form"
_PEM_AUTHORITIES = "a file with certificates in PEM form"
_PEM_KEY = "a file with a private key in PEM form"


def _optional(raw: object) -> object:
    """None for every value that means "not given"."""
    return None if raw is None or raw == "" or raw == () else raw


def _setting(default: Any, read: Reader, give: str, *, secret: bool = False) -> Any:
    metadata = {"read": read, "give": give, "secret": secret}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


def _data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/detent")
    shared = Path(environ.get("XDG_DATA_HOME", ""))
    if shared.is_absolute():
        return shared / "detent"
    home = Path(environ.get("HOME", ""))
    if home.is_absolute():
        return home / ".local" / "share" / "detent"
    raise UsageError("There is no home folder for the data: give a folder with --data-dir or DETENT_DATA_DIR.")


class Context(NamedTuple):
    """A server under a name: where it is, and the files with the key for it and for TLS with it."""

    name: str
    url: str
    key_file: Path | None
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One value per setting. `database_url` None means the embedded PostgreSQL in `data_dir`;
    `misfire_grace_seconds` is the default of jobs; None means by their interval. `catchup_rate` is per partition; None
    means by its schedules."""

    database_url: str | None = _setting(
        None,
        url("postgresql", "postgres"),
        "an address such as postgresql://user@host:5432/detent",
        secret=True,
    )
    database_schema: str = _setting(
        "detent",
        text(r"(?!pg_)[a-z_][a-z0-9_]{0,62}"),
        "a lower-case name of letters, digits and underscores, such as detent",
    )
    database_pooler: str = _setting("none", choice("none", "transaction"), "none or transaction")
    data_dir: Path = _setting(_data_dir, path, "a folder")  # noqa: RUF009 - a field, not a default
    host: str = _setting("127.0.0.1", text(r"[^\s\x00]+"), "an address or host name to listen on")
    port: int = _setting(8787, whole(0, 65535), "a port number between 0 and 65535")
    public_url: str | None = _setting(None, base_url, "an address such as https://detent.example.com")
    tls_cert: Path | None = _setting(None, path, _PEM_CERTIFICATE)  # noqa: RUF009 - a field
    tls_key: Path | None = _setting(None, path, _PEM_KEY)  # noqa: RUF009 - a field
    tls_client_ca: Path | None = _setting(None, path, _PEM_AUTHORITIES)  # noqa: RUF009 - a field
    require_keys: bool = _setting(False, switch, "true or false")
    metrics_port: int | None = _setting(None, whole(0, 65535), "a port number between 0 and 65535")
    migrate: bool = _setting(False, switch, "true or false")
    app: str | None = _setting(None, text(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"), "MODULE:NAME, such as shop.jobs:app")
    isolate: str = _setting("thread", choice("thread", "process"), "thread or process")
    handler_processes: int | None = _setting(
        None, or_auto(whole(1, 10_000)), "auto, or a whole number between 1 and 10000"
    )
    allow_shell: tuple[str, ...] = _setting(
        (), tenants, "the names of the tenants whose commands may run, separated by commas, such as default"
    )
    shell_user: str | None = _setting(None, text(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\$?"), "the name of a system user")
    celery_apps: tuple[str, ...] = _setting((), celery_apps, "Celery apps as MODULE:NAME or MODULE:NAME@TENANT")
    concurrency: int = _setting(100, whole(1, 100_000), "a whole number between 1 and 100000")
    breaker_failures: int = _setting(10, whole(0, 1_000_000), "0 to turn it off, or a whole number up to 1000000")
    breaker_max_pause_seconds: float = _setting(30.0, seconds(1, 3600), "a number of seconds between 1 and 3600")
    tenant_headroom: float = _setting(0.2, seconds(0, 0.9), "0 to turn it off, or a number up to 0.9")
    http_host_concurrency: int = _setting(0, whole(0, 100_000), "0 for any number, or a whole number up to 100000")
    queues: tuple[str, ...] = _setting(
        ("default",), names, "one or more queue names without spaces, separated by commas"
    )
    queue: str = _setting(
        "postgres",
        queue,
        "postgres, redis, nats, rabbitmq, kafka or sqs, or the address of such a broker, such as redis://host:6379/0"
        " (the queues that a worker serves are DETENT_QUEUES)",
        secret=True,
    )
    drain_seconds: float = _setting(30.0, seconds(0, 86_400), "a number of seconds between 0 and 86400")
    lease_ttl_seconds: float = _setting(5.0, seconds(0.5, 300), "a number of seconds between 0.5 and 300")
    coordinator: str = _setting(
        "postgres",
        coordinator,
        "postgres, advisory, or an address such as etcd://host:2379, zookeeper://host:2181 or redis://host:6379/0",
        secret=True,
    )
    clock_step_limit_seconds: float = _setting(
        1800.0, zero_or_seconds(10, 31_536_000), "0 for no limit, or a number of seconds between 10 and 31536000"
    )
    window_seconds: float = _setting(60.0, seconds(1, 86_400), "a number of seconds between 1 and 86400")
    misfire_grace_seconds: int | None = _setting(
        None, or_auto(whole(0, 31_536_000)), "auto, or a whole number of seconds between 0 and 31536000"
    )
    catchup_rate: float | None = _setting(
        None, or_auto(seconds(0.1, 100_000)), "auto, or a number of ticks per second between 0.1 and 100000"
    )
    history_days: int = _setting(90, whole(1, 36_500), "a whole number of days between 1 and 36500")
    audit_days: int = _setting(365, whole(1, 36_500), "a whole number of days between 1 and 36500")
    revisions_kept: int = _setting(100, whole(1, 100_000), "a whole number between 1 and 100000")
    archive_url: str | None = _setting(
        None, archive, "a folder such as /var/lib/detent/archive, or an address such as s3://bucket/detent"
    )
    notify_url: str | None = _setting(
        None, url("http", "https"), "an address such as https://hooks.example.com/detent", secret=True
    )
    notify_format: str = _setting("webhook", choice("webhook", "slack"), "webhook or slack")
    notify_secret: str | None = _setting(
        None,
        text(r"[A-Za-z0-9+/=_,]+"),
        "whsec_ and 24 to 64 bytes in base64, or two, separated by a comma",
        secret=True,
    )
    heartbeat_url: str | None = _setting(
        None, url("http", "https"), "an address such as https://monitor.example.com/ping/detent", secret=True
    )
    heartbeat_seconds: float = _setting(60.0, seconds(1, 86_400), "a number of seconds between 1 and 86400")
    secret_key: str | None = _setting(
        None,
        secret_keys,
        "a key that `detent secret generate-key` prints, or several, the newest first, separated by commas",
        secret=True,
    )
    secret_environment: tuple[str, ...] = _setting(
        (), patterns, "names of environment variables, separated by commas, such as PAYMENT_*"
    )
    secret_directory: Path | None = _setting(  # noqa: RUF009 - a field, not a default
        None, path, "a folder of files, such as /run/credentials"
    )
    secret_provider_tenants: tuple[str, ...] = _setting(
        ("default",), tenants, "the names of the tenants whose jobs may use env: and file:, separated by commas"
    )
    oidc_issuer: str | None = _setting(None, url("https", "http"), "an address such as https://login.example.com")
    oidc_client_id: str | None = _setting(None, text(r"[\x21-\x7e]+"), "the id of this client at the provider")
    oidc_client_secret: str | None = _setting(None, text(r"[\x20-\x7e]+"), "the secret of this client", secret=True)
    oidc_redirect_url: str | None = _setting(
        None, callback, "an address such as https://detent.example.com/login/oidc/callback"
    )
    oidc_scopes: tuple[str, ...] = _setting(
        ("openid", "profile", "email"), names, "one or more scopes, separated by commas, such as openid,email,groups"
    )
    oidc_groups_claim: str = _setting("groups", text(r"[\x21-\x7e]+"), "the name of a claim, such as groups")
    oidc_check_seconds: float = _setting(300.0, seconds(1, 86_400), "a number of seconds between 1 and 86400")
    traces: str = _setting("none", choice("none", "otlp"), "none or otlp")
    trace_ratio: float = _setting(1.0, seconds(0, 1), "a number between 0 and 1")
    api_url: str = _setting("http://127.0.0.1:8787", url("http", "https"), "an address such as http://127.0.0.1:8787")
    api_key: str | None = _setting(None, text(r"[\x21-\x7e]+"), "a key without spaces", secret=True)
    ca_file: Path | None = _setting(None, path, _PEM_AUTHORITIES)  # noqa: RUF009 - a field
    client_cert: Path | None = _setting(None, path, _PEM_CERTIFICATE)  # noqa: RUF009 - a field
    client_key: Path | None = _setting(None, path, _PEM_KEY)  # noqa: RUF009 - a field
    log_format: str = _setting("auto", choice("auto", "json", "pretty"), "auto, json or pretty")
    log_level: str = _setting("info", choice("debug", "info", "warning", "error"), "debug, info, warning or error")
    failpoints: str = _setting("", text(), "a list of failpoints")
    production: bool = _setting(False, switch, "true or false")
    max_payload_bytes: int = _setting(
        1_048_576, whole(1, 268_435_456), "a whole number of bytes between 1 and 268435456"
    )
    run_log_bytes: int = _setting(131_072, whole(0, 16_777_216), "a whole number of bytes between 0 and 16777216")
    max_result_bytes: int = _setting(16_384, whole(0, 268_435_456), "a whole number of bytes between 0 and 268435456")
    requests_per_second: float = _setting(1000.0, seconds(0, 1_000_000), "0 for no limit, or a number up to 1000000")
    failed_keys_per_second: float = _setting(10.0, seconds(0, 1_000_000), "0 for no limit, or a number up to 1000000")
    trusted_proxies: tuple[str, ...] = _setting(
        (), networks, "one or more addresses or networks such as 10.0.0.0/8, separated by commas"
    )
    max_live_streams: int = _setting(100, whole(1, 500), "a whole number between 1 and 500")
    max_connections: int = _setting(1000, whole(2, 1_000_000), "a whole number between 2 and 1000000")
    max_header_bytes: int = _setting(32_768, whole(1024, 1_048_576), "a whole number of bytes between 1024 and 1048576")
    request_header_seconds: float = _setting(10.0, seconds(1, 3600), "a number of seconds between 1 and 3600")
    request_body_seconds: float = _setting(30.0, seconds(1, 3600), "a number of seconds between 1 and 3600")
    max_request_memory_bytes: int = _setting(
        67_108_864, whole(1_048_576, 17_179_869_184), "a whole number of bytes between 1048576 and 17179869184"
    )
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    @property
    def pooled(self) -> bool:
        """Whether a pooler shares connections between clients; the embedded server has none."""
        return self.database_url is not None and self.database_pooler == "transaction"

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the API."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def tls_given(self) -> bool:
        return any((self.tls_cert, self.tls_key, self.tls_client_ca))

    @property
    def keys_required(self) -> bool:
        """Whether requests need a key even while the cluster has none: a shell job can do what this process can."""
        return self.require_keys or bool(self.allow_shell)

    @property
    def seeks_port(self) -> bool:
        """Whether the port is the default, so that the next free one may be used instead."""
        return self.origins.get("port") == "default"

    def check_key_address(self) -> None:
        """Refuse to send a key of the environment to the address in a file that was found in the working folder: the
        file may have come with a repository of others, who would get the key."""
        key, address = self.origins.get("api_key", ""), self.origins.get("api_url", "")
        if key.startswith(PREFIX) and address.startswith(IN_FILE):
            file = address.removeprefix(IN_FILE)
            raise UsageError(
                f"{key} is set, but the address {self.api_url} is from {file}, which may have come with other "
                f"people's files: to send the key there, set DETENT_API_URL={self.api_url}, give --api-url, or name "
                "the file with --config."
            )

    @classmethod
    def load(
        cls,
        flags: Mapping[str, object],
        environ: Mapping[str, str] = os.environ,
        cwd: Path | None = None,
        context: Context | None = None,
    ) -> Settings:
        """`flags` go by setting name; None, "" and () mean not given. `config` among them names the file."""
        folder = Path.cwd() if cwd is None else cwd
        above = [*_from_environment(environ, folder), *_from_flags(flags, folder)]
        below = list(_from_file(flags, folder))
        elsewhere = any(name == "api_url" for name, *_ in above)
        if elsewhere and any(name == "api_url" for name, *_ in below):
            below = [found for found in below if found[0] not in OF_SERVER]
        if context is not None and not elsewhere:
            below = [found for found in below if found[0] not in OF_SERVER] + list(_from_context(context, folder))
        values: dict[str, Any] = {}
        origins = dict.fromkeys(SETTINGS, "default")
        for name, origin, raw, base in (*below, *above):
            values[name] = _read(name, origin, raw, base)
            origins[name] = origin
        if "data_dir" not in values:
            values["data_dir"] = _data_dir(environ)
        return cls(**values, origins=MappingProxyType(origins))


SETTINGS: Mapping[str, dataclasses.Field[Any]] = MappingProxyType(
    {field.name: field for field in dataclasses.fields(Settings) if field.metadata}
)

# A value that was found: its setting, where it was read, what was read, and the folder its paths start from.
Found = tuple[str, str, object, Path]


def _from_flags(flags: Mapping[str, object], folder: Path) -> Iterable[Found]:
    for name, raw in flags.items():
        if name == "config" or _optional(raw) is None:
            continue
        if name not in SETTINGS:
            raise UsageError(_unknown(f"The flag {_flag(name)}", _flag(name), map(_flag, SETTINGS)))
        yield name, _flag(name), raw, folder


def _from_context(context: Context, folder: Path) -> Iterable[Found]:
    origin = f"context {context.name}"
    yield "api_url", origin, context.url, folder
    for name in ("ca_file", "client_cert", "client_key"):
        if getattr(context, name) is not None:
            yield name, origin, getattr(context, name), folder
    if context.key_file is not None:
        yield "api_key", f"{context.key_file} of {origin}", secret_in(f"The {origin}", context.key_file), folder


def _from_environment(environ: Mapping[str, str], folder: Path) -> Iterable[Found]:
    known = {PREFIX + name.upper(): name for name in SETTINGS}
    from_files = {f"{key}_FILE": key for key, name in known.items() if SETTINGS[name].metadata["secret"]}
    for key in sorted(environ):
        if not key.startswith(PREFIX) or key.startswith(FOREIGN_PREFIX):
            continue
        if key not in known and key not in from_files:
            raise UsageError(_unknown(f"The variable {key}", key, [*known, *from_files]))
        if not environ[key]:
            continue
        if key in known:
            yield known[key], key, environ[key], folder
        elif environ.get(from_files[key]):
            raise UsageError(f"{from_files[key]} and {key} are both set: keep one of the two.")
        else:
            yield known[from_files[key]], key, secret_in(key, folder / environ[key]), folder


def _from_file(flags: Mapping[str, object], folder: Path) -> Iterable[Found]:
    named = _optional(flags.get("config"))
    path = folder / Path(str(named or CONFIG_FILE)).expanduser()
    if named is None and not path.exists():
        return
    for key, raw in settings_in(path).items():
        if key not in SETTINGS:
            raise UsageError(_unknown(f"The key {key} in {path}", key, SETTINGS))
        if _optional(raw) is not None:
            yield key, f"{key} in {path}", raw, path.parent


def _read(name: str, origin: str, raw: object, base: Path) -> object:
    rule = SETTINGS[name].metadata
    try:
        value = rule["read"](raw)
    except (ValueError, OverflowError):
        shown = "not usable" if rule["secret"] else repr(raw)
        raise UsageError(f"{origin} is {shown}: give {rule['give']}.", f"/{name}") from None
    return base / value if isinstance(value, Path) else value


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _unknown(subject: str, name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    advice = f"did you mean {near[0]}?" if near else "remove it."
    return f"{subject} is not a setting of detent: {advice}"
