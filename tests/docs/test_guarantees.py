"""The SQL of the guarantees page does what the page says of it."""

from __future__ import annotations

import asyncpg

from tests.docs.docs_pages import blocks_of

PAGE = "docs/guarantees.md"


def statement(beginning: str) -> str:
    (found,) = [block.text for block in blocks_of(PAGE) if block.language == "sql" and block.text.startswith(beginning)]
    return found


async def test_the_second_call_with_the_same_key_inserts_nothing(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(statement("CREATE TABLE done"))
    for customer in ("acme", "acme again"):
        await connection.execute(statement("WITH first"), "job:1794738723", customer, 100)
    assert await connection.fetch("SELECT customer FROM invoices") == [("acme",)]
    await connection.close()


async def test_a_lower_token_of_the_same_run_is_refused_and_the_same_or_a_higher_one_is_not(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(statement("CREATE TABLE tokens"))
    (code,) = [block.text for block in blocks_of(PAGE) if "def still_mine" in block.text]
    names: dict[str, object] = {}
    exec(code, names)
    still_mine = names["still_mine"]
    assert callable(still_mine)
    answers = [await still_mine(connection, "job:1", token) for token in (7, 7, 8, 7)]
    assert answers == [True, True, True, False]
    assert await still_mine(connection, "job:2", 1)
    await connection.close()
