"""Nominations in Redis or Valkey: a key per partition that expires, written by one script for all of them.

Redis may lose writes, by design: a snapshot is older than the last writes, and a replica that takes over lags behind.
Then a second node is nominated for a partition while the first still believes in its nomination. The database accepts
the larger number, so the number must grow: it is never smaller than the microseconds of Redis' clock, even after the
counter was lost.
"""

from __future__ import annotations

from collections.abc import Collection

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from detent.cluster.coordinators.services import Candidate, answering, ignoring_errors_on_close
from detent.domain.identity import node_name

# KEYS: the counters, then a leader for each partition. ARGV: me, the time to live in milliseconds, the partitions.
# Returns a number for each partition, empty where another node is nominated.
CAMPAIGN = """
local clock = redis.call('TIME')
local floor = clock[1] * 1000000 + clock[2]
local numbers = {}
for i = 2, #KEYS do
    local nominee, number = string.match(redis.call('GET', KEYS[i]) or '', '^(%S+) (%d+)$')
    if nominee == ARGV[1] then
        redis.call('PEXPIRE', KEYS[i], ARGV[2])
    elseif nominee then
        number = ''
    else
        local last = tonumber(redis.call('HGET', KEYS[1], ARGV[i + 1]) or 0)
        number = string.format('%.0f', math.max(last + 1, floor))
        redis.call('HSET', KEYS[1], ARGV[i + 1], number)
        redis.call('SET', KEYS[i], ARGV[1] .. ' ' .. number, 'PX', ARGV[2])
    end
    numbers[i - 1] = number
end
return numbers
"""

# KEYS: a leader for each partition. ARGV: me.
RESIGN = """
for _, key in ipairs(KEYS) do
    if string.match(redis.call('GET', key) or '', '^%S+') == ARGV[1] then
        redis.call('DEL', key)
    end
end
"""


class RedisCoordinator:
    name = "redis"
    renews = True
    numbered = True

    def __init__(self, url: str, candidate: Candidate) -> None:
        self._candidate = candidate
        self._me = node_name(candidate.node)
        self._held: set[int] = set()
        # One immediate retry: a connection from before a restart of the server fails on its first use.
        self._redis = Redis.from_url(
            url, socket_timeout=candidate.limit, socket_connect_timeout=candidate.limit, retry=Retry(NoBackoff(), 1)
        )
        self._campaign = self._redis.register_script(CAMPAIGN)
        self._resign = self._redis.register_script(RESIGN)

    def _key(self, name: str) -> str:
        # What is in braces decides the slot: a script may only touch keys of one.
        return f"detent:{{{self._candidate.cluster}}}:{name}"

    def _leader(self, partition: int) -> str:
        return self._key(f"partition-{partition}:leader")

    async def open(self) -> None:
        async with answering("Redis", self._candidate.limit, RedisError, OSError):
            await self._redis.ping()

    async def campaign(self, wanted: Collection[int]) -> dict[int, int | None]:
        partitions = sorted(wanted)
        await self.resign(self._held - set(partitions))
        self._held |= set(partitions)  # before the answer, which may be lost
        async with answering("Redis", self._candidate.limit, RedisError, OSError):
            numbers = await self._campaign(
                keys=[self._key("numbers"), *map(self._leader, partitions)],
                args=[self._me, round(self._candidate.ttl * 1000), *partitions],
            )
        nominated: dict[int, int | None] = {
            partition: int(number) for partition, number in zip(partitions, numbers, strict=True) if number
        }
        self._held = set(nominated)
        return nominated

    async def resign(self, partitions: Collection[int]) -> None:
        if partitions:
            async with answering("Redis", self._candidate.limit, RedisError, OSError):
                await self._resign(keys=[self._leader(partition) for partition in partitions], args=[self._me])
            self._held -= set(partitions)

    async def close(self) -> None:
        with ignoring_errors_on_close(self.name):
            await self.resign(self._held)
        with ignoring_errors_on_close(self.name):
            await self._redis.aclose()
