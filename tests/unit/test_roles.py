"""The table of roles, and what several grants permit together."""

from __future__ import annotations

import itertools

import pytest

from detent.domain.roles import (
    EVERY_JOB,
    GRANTS,
    PERMITTED,
    ROLES,
    BoundRole,
    JobLimit,
    described,
    grants_of,
    holds_everywhere,
    limits_for,
)

MAIL, NIGHTLY = JobLimit(queue="mail"), JobLimit(tag="nightly")


def test_each_role_includes_those_before_it() -> None:
    for less, more in itertools.pairwise(ROLES):
        assert PERMITTED[less] < PERMITTED[more]


def test_the_scopes_of_keys_are_the_roles_or_those_of_workers() -> None:
    assert {scope for scope, granted in GRANTS.items() if granted not in PERMITTED.values()} == {
        "work",
        "secrets",
        "bound",
    }


def test_a_binding_without_a_limit_outweighs_those_with_one() -> None:
    grants = grants_of("bound", [BoundRole("editor", queue="mail"), BoundRole("viewer")])
    assert limits_for(grants, "read") is None
    assert limits_for(grants, "write") == (MAIL,)
    assert limits_for(grants, "admin") == ()


def test_what_is_permitted_with_some_jobs_is_not_permitted_everywhere() -> None:
    editor_of_mail = BoundRole("editor", queue="mail")
    assert holds_everywhere(grants_of("bound", [editor_of_mail]), "write")
    assert not holds_everywhere(grants_of("bound", [editor_of_mail, BoundRole("viewer", tag="nightly")]), "write")
    assert holds_everywhere(grants_of("write", [BoundRole("viewer", tag="nightly")]), "write")
    assert not holds_everywhere(grants_of("read", [editor_of_mail]), "write")
    assert not holds_everywhere(grants_of(None), "read")


@pytest.mark.parametrize(
    ("limit", "queue", "tags", "within"),
    [
        (EVERY_JOB, "mail", [], True),
        (MAIL, "mail", [], True),
        (MAIL, "default", ["mail"], False),
        (NIGHTLY, "default", ["nightly", "x"], True),
        (JobLimit("mail", "nightly"), "mail", ["x"], False),
        (JobLimit("mail", "nightly"), "mail", ["nightly"], True),
    ],
)
def test_a_job_is_within_a_limit_if_its_queue_and_its_tags_are(
    limit: JobLimit, queue: str, tags: list[str], within: bool
) -> None:
    assert limit.includes(queue, tags) is within


def test_limits_are_described_in_words() -> None:
    assert described((MAIL, JobLimit("a", "b"))) == "the queue 'mail', or to the queue 'a' and the tag 'b'"
