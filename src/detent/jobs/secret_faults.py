"""The answer to a registration that refers to secrets which do not exist."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from detent.domain.job import JobSpec
from detent.domain.references import Reference, check_reference, references_in, references_of
from detent.domain.secret_ref import provider_of
from detent.errors import ManyFaults, NotAuthorised, UsageError

MAX_FAULTS = 100


def unknown_secret(spec: JobSpec, missing: Collection[str]) -> UsageError:
    """Points at the first reference to one of them."""
    return next(_faults(references_of(spec), missing))


def unknown_secrets(specs: Sequence[object], missing: Collection[str]) -> ManyFaults:
    """Errors for jobs that are registered together: each reference to a missing secret, with the position of its
    job."""
    faults = [
        UsageError(fault.message, f"/{position}{fault.pointer}")
        for position, spec in enumerate(specs)
        if isinstance(spec, JobSpec)
        for fault in _faults(references_of(spec), missing)
    ]
    return ManyFaults(f"No job was registered; at {faults[0].pointer}: {faults[0].message}", faults[:MAX_FAULTS])


def payload_secrets(payload: object, *, allowed: bool) -> tuple[str, ...]:
    """The stored secrets that the payload of one run refers to."""
    references = list(references_in(payload, ("payload",)))
    if references and not allowed:
        raise NotAuthorised(
            "The payload refers to a secret, and choosing which secrets a job gets needs the scope write: use a key "
            "with write or admin, or a payload without references."
        )
    for reference in references:
        check_reference(reference)
    return tuple(one.name for one in references if provider_of(one.name)[0] == "stored")


def unknown_in_payload(payload: object, missing: Collection[str]) -> UsageError:
    return next(_faults(references_in(payload, ("payload",)), missing))


def _faults(references: Iterator[Reference], missing: Collection[str]) -> Iterator[UsageError]:
    for reference in references:
        if reference.name in missing:
            yield UsageError(
                f"There is no secret {reference.name!r}: create it with `detent secret set {reference.name}`, or use "
                "the name of another.",
                reference.pointer,
            )
