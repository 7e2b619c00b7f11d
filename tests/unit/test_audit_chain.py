"""The chain of hashes of the audit log: every way to tamper with it is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from detent.domain.audit_chain import NOTHING, ChainCheck, ChainEnds, ChainLink, digest, digests

COUNT = 9


def chain(count: int = COUNT) -> list[ChainLink]:
    facts: list[list[Any]] = [[number, f"change {number}", {"after": number}] for number in range(1, count + 1)]
    hashes = list(digests(NOTHING, facts))
    previous = [NOTHING, *hashes]
    return [ChainLink(n + 1, 100 + n, facts[n], previous[n], hashes[n]) for n in range(count)]


def faults_of(links: Sequence[ChainLink], intact: Sequence[ChainLink], **options: Any) -> list[str]:
    check = ChainCheck(**options)
    for link in links:
        check.read(link)
    check.end(ChainEnds(0, NOTHING, len(intact), intact[-1].hash if intact else NOTHING))
    return [fault.text for fault in check.faults]


def test_an_untouched_chain_has_no_fault() -> None:
    assert faults_of(chain(), chain()) == []
    assert faults_of([], []) == []


@pytest.mark.parametrize("place", [0, 4, COUNT - 1])
def test_an_altered_event_is_named_and_no_other(place: int) -> None:
    links = chain()
    links[place] = links[place]._replace(facts=[place + 1, "another change", {}])
    assert faults_of(links, chain()) == [
        f"Event {100 + place} at position {place + 1} was altered: it no longer fits its hash."
    ]


def test_an_altered_event_with_a_new_hash_breaks_the_next_one() -> None:
    links = chain()
    changed = [4, "another change"]
    links[3] = links[3]._replace(facts=changed, hash=digest(links[3].previous, changed))
    assert faults_of(links, chain()) == [
        "Event 104 at position 5 is not the one that was chained here: events were moved, replaced or inserted."
    ]


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (slice(0, 1), "Event at position 1 was removed."),
        (slice(3, 6), "Events at positions 4 to 6 were removed."),
        (slice(7, 9), "The newest events were cut off: positions 8 to 9 were removed."),
    ],
)
def test_removed_events_are_named(gone: slice, said: str) -> None:
    links = chain()
    del links[gone]
    assert faults_of(links, chain()) == [said]


def test_a_removed_event_is_noticed_even_if_the_others_are_renumbered() -> None:
    links = [link._replace(position=place) for place, link in enumerate([*chain()[:3], *chain()[4:]], 1)]
    texts = faults_of(links, chain())
    assert texts[0].startswith("Event 104 at position 4 is not the one that was chained here")
    assert texts[-1].startswith("The newest events were cut off")


def test_events_that_were_swapped_are_named() -> None:
    links = chain()
    links[2], links[3] = links[3]._replace(position=3), links[2]._replace(position=4)
    texts = faults_of(links, chain())
    assert [text.split(" is not")[0] for text in texts] == [
        "Event 103 at position 3",
        "Event 102 at position 4",
        "Event 104 at position 5",
    ]


def test_a_chain_that_was_rewritten_differs_from_a_hash_that_was_stored_elsewhere() -> None:
    before = chain()
    facts = [["another past"], *(link.facts for link in before[1:])]
    hashes = list(digests(NOTHING, facts))
    anew = [
        link._replace(facts=fact, hash=own, previous=previous)
        for link, fact, own, previous in zip(before, facts, hashes, [NOTHING, *hashes], strict=False)
    ]
    assert faults_of(anew, anew) == []
    (text,) = faults_of(anew, anew, expected=(5, before[4].hash))
    assert text.startswith("Event 104 at position 5 has another hash than expected")
    assert faults_of(before, before, expected=(5, before[4].hash)) == []
    assert faults_of(before, before, expected=(50, NOTHING)) == [
        "There is no event at position 50, whose hash was expected."
    ]


def test_a_chain_whose_beginning_is_no_longer_kept_continues_from_the_last_that_was_removed() -> None:
    links = chain()
    assert faults_of(links[3:], links, purged=3, purged_hash=links[2].hash) == []
    assert faults_of(links[3:], links, purged=3, purged_hash=NOTHING)[0].startswith("Event 103 at position 4 is not")
    assert faults_of(links[3:], links, purged=3, purged_hash=None) == []


def test_an_expected_head_whose_event_was_removed_after_its_time_is_compared_as_far_as_it_is_known() -> None:
    links = chain()
    options = {"purged": 3, "purged_hash": links[2].hash}
    assert faults_of(links[3:], links, **options, expected=(3, links[2].hash)) == []
    assert faults_of(links[3:], links, **options, expected=(3, NOTHING)) == [
        "The event at position 3, which was removed after its time, had another hash than expected."
    ]
    assert faults_of(links[3:], links, **options, expected=(2, links[1].hash)) == [
        "The event at position 2, whose hash was expected, was removed after its time: expect a later head."
    ]
    assert faults_of(links, links, expected=(0, NOTHING)) == []
