"""`detent secret …`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from detent.cli import base, output, times
from detent.cli.base import command, group, option
from detent.cli.invocation import api_options, connect, format_options, invocation
from detent.cli.output import Column, Item
from detent.cli.text import clean
from detent.domain.counts import plural
from detent.errors import UsageError

secret = group("secret", "Store and rotate secrets that jobs refer to.", panel="Administration")

COLUMNS = (
    Column("NAME", lambda secret: secret["name"]),
    Column("VERSION", lambda secret: secret["version"], right=True),
    Column("VALID", lambda secret: secret["versions"], right=True),
    Column("JOBS", lambda secret: secret["jobs"], lambda one, at: f"{one['jobs']:,}", right=True),
    Column("CHANGED", lambda secret: secret["changed_at"], lambda one, at: times.both(one["changed_at"], at)),
    Column("CHANGED BY", lambda secret: secret["changed_by"], extra=True),
    Column(
        "FORMER UNTIL",
        lambda secret: secret["previous_until"],
        lambda one, at: times.relative(one["previous_until"], at),
        extra=True,
    ),
)

_file_option = option(
    "--file", "-f", "file", metavar="FILE", help="Read the value from this file. [stdin]", default="-"
)


@command(
    secret,
    "set",
    examples=(
        "detent secret set payments-key < key.txt",
        "detent secret generate-key --signing | detent secret set webhooks",
    ),
)
@click.argument("name")
@_file_option
@api_options(quiet="the secret's name only")
def set_secret(name: str, file: str) -> None:
    """Create a secret, or replace its value.

    The value is read from a file or stdin, never from an argument, which other
    users of the machine could see. One line end at its end is left out. Workers
    use a new value within two seconds; the former one is gone at once.
    """
    value = _read_value(file)
    with connect() as client:
        answer = client.set_secret(name, value)
    _done("Stored", answer, f'refer to it with {{"secret": "{name}"}}')


@command(
    secret,
    "rotate",
    examples=("detent secret rotate webhooks --keep 1d -f new-key.txt",),
)
@click.argument("name")
@option(
    "--keep",
    metavar="TIME",
    default="0",
    help="How long the former values stay valid for signatures, such as 1d. [0]",
)
@_file_option
@api_options(quiet="the secret's name only")
def rotate(name: str, keep: str, file: str) -> None:
    """Give a secret a new value.

    Headers, payloads and variables get the new value. Calls are signed with the
    former ones, too, while they are valid, so that receivers can change in
    their own time.
    """
    seconds = times.read_duration("--keep", keep)
    value = _read_value(file)
    with connect() as client:
        answer = client.rotate_secret(name, value, keep_seconds=seconds)
    until = answer["previous_until"]
    kept = f"former values stay valid until {times.absolute(until)}" if until else "former values are gone"
    _done("Rotated", answer, kept)


def _done(verb: str, answer: Item, rest: str) -> None:
    output.say(f"{verb} secret {answer['name']}, version {answer['version']}: {rest}.")
    if invocation().format != "text":
        output.print_fields(answer, (), identity="name")


@command(secret, "list", examples=("detent secret list",))
@api_options(quiet="names only")
def list_secrets() -> None:
    """List the secrets; their values are never shown."""
    with connect() as client:
        page = client.list_secrets().page()
    output.print_page(
        page, COLUMNS, "There are no secrets yet: create one, see `detent secret set --help`.", identity="name"
    )


@command(secret, "delete", examples=("detent secret delete payments-key --yes",))
@click.argument("name")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options(quiet="nothing")
def delete(name: str, yes: bool) -> int:
    """Delete a secret; refused while jobs refer to it."""
    if not output.agreed(yes, f"Delete secret {name}?", f"detent secret delete {name} --yes"):
        output.say("Nothing was deleted.")
        return 1
    with connect() as client:
        client.delete_secret(name)
    output.say(f"Deleted secret {name}.")
    if invocation().format == "json":
        output.print_json({"name": name, "status": "deleted"})
    return 0


@command(secret, "generate-key", examples=("detent secret generate-key > /etc/detent/secret-key",))
@option("--signing", is_flag=True, help="A key that signs HTTP calls, whsec_…, instead.")
@format_options()
def generate_key(signing: bool) -> None:
    """Print a new random key.

    It encrypts the secrets of a cluster: give it to every node in
    DETENT_SECRET_KEY, or in a file that DETENT_SECRET_KEY_FILE names. Keep a
    copy: without it the secrets are lost.
    """
    from detent.runtime.envelope import generate_master_key, generate_signing_key

    print(generate_signing_key() if signing else generate_master_key())


@command(secret, "rotate-key", examples=("detent secret rotate-key",))
@api_options(quiet="nothing")
def rotate_key() -> None:
    """Put all secrets under the newest secret key of the server.

    Before: give every node the new key, a comma, and the old key. Afterwards
    the old key is not needed. Values are not decrypted, and jobs go on.
    """
    done: list[Any] = []
    with connect() as client:
        while not done or done[-1]["remaining"]:
            done.append(client.rotate_secret_key())
    changed, key_id = sum(one["rewrapped"] for one in done), done[-1]["key_id"]
    output.say(f"All secrets are under the key {key_id}: {plural(changed, 'version')} changed.")
    if invocation().format == "json":
        output.print_json({"key_id": key_id, "rewrapped": changed})


def _read_value(file: str) -> str:
    if file == "-" and base.can_ask():
        return str(click.prompt("Value", hide_input=True, err=True))
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
        return raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UsageError(f"--file names {clean(file)}, which is not UTF-8 text.") from None
    except OSError as error:
        raise UsageError(f"--file names {clean(file)}, which cannot be read ({error.strerror}).") from None
