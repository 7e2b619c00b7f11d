"""The scripts of `redis.py`. Keys are those of queues, `detent:{cluster}:<queue>`, to which scripts append the rest.

A member of `taken` is `<delivery> <priority> <due> <offer>`.
"""

from __future__ import annotations

KEPT_SECONDS = 3600
# The most offers of one queue and priority. Only a take removes offers, and workers that have a backlog take none, nor
# do programs that pull over the API alone. Beyond this, the offers that were due first are dropped: runs that still
# wait are offered again.
MAX_OFFERS = 20_000

# A wake-up that is there already wakes as well as two.
_SHARED = f"""
local function wake(key)
    if redis.call('LLEN', key .. ':wake') == 0 then
        redis.call('RPUSH', key .. ':wake', '')
        redis.call('EXPIRE', key .. ':wake', {KEPT_SECONDS})
    end
end

local kept, filled = {{}}, {{}}
local function keep(key)
    if not kept[key] then
        kept[key] = true
        redis.call('EXPIRE', key, {KEPT_SECONDS})
    end
end

local function add(key, priority, due, offer)
    local offers, priorities = key .. ':offers:' .. priority, key .. ':priorities'
    redis.call('ZADD', offers, due, offer)
    if not kept[offers] then
        redis.call('ZADD', priorities, priority, priority)
        filled[#filled + 1] = offers
    end
    keep(offers)
    keep(priorities)
end

local function give_back(key, member)
    if redis.call('ZREM', key .. ':taken', member) == 1 then
        add(key, string.match(member, '^%S+ (%S+) (%S+) (.*)$'))
    end
end

local function microseconds()
    local clock = redis.call('TIME')
    return clock[1] * 1000000 + clock[2]
end

local function exactly(number) return string.format('%.0f', number) end
"""

# ARGV: for each offer the index of its queue, its priority, when it is due, and the offer.
SEND = f"""{_SHARED}
for position = 1, #ARGV, 4 do
    add(KEYS[tonumber(ARGV[position])], ARGV[position + 1], ARGV[position + 2], ARGV[position + 3])
end
for _, offers in ipairs(filled) do redis.call('ZREMRANGEBYRANK', offers, 0, -{MAX_OFFERS + 1}) end
for _, key in ipairs(KEYS) do wake(key) end
"""

# ARGV: the time of the database, how many, how long they are held (both in microseconds), a name for the deliveries.
# Returns when the next offer is due, unless some were taken, and for each the index of its queue and its member.
TAKE = f"""{_SHARED}
local present = microseconds()
local returns = exactly(present + ARGV[3])
local sets = {{}}
for index, key in ipairs(KEYS) do
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', key .. ':taken', '-inf', exactly(present), 'LIMIT', 0, 100)) do
        give_back(key, member)
    end
    for _, priority in ipairs(redis.call('ZRANGE', key .. ':priorities', 0, -1)) do
        sets[#sets + 1] = {{index = index, key = key, priority = priority, order = #sets}}
    end
end
table.sort(sets, function(one, other)
    local first, second = tonumber(one.priority), tonumber(other.priority)
    return first > second or (first == second and one.order < other.order)
end)

local left, answer, next_due, full = tonumber(ARGV[2]), {{''}}, math.huge, {{}}
for _, set in ipairs(sets) do
    local offers, taken = set.key .. ':offers:' .. set.priority, set.key .. ':taken'
    if left > 0 then
        local due = redis.call('ZRANGEBYSCORE', offers, '-inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, left)
        for position = 1, #due, 2 do
            local member = table.concat({{ARGV[4], set.priority, due[position + 1], due[position]}}, ' ')
            redis.call('ZREM', offers, due[position])
            redis.call('ZADD', taken, returns, member)
            answer[#answer + 1] = set.index
            answer[#answer + 1] = member
        end
        if #due > 0 then keep(taken) end
        left = left - #due / 2
    end
    local first = redis.call('ZRANGE', offers, 0, 0, 'WITHSCORES')
    if #first == 0 then
        redis.call('ZREM', set.key .. ':priorities', set.priority)
    elseif tonumber(first[2]) > tonumber(ARGV[1]) then
        next_due = math.min(next_due, tonumber(first[2]))
    else
        full[set.key] = true
    end
end
-- More is due than this worker takes: it wakes the next one.
for key in pairs(full) do wake(key) end
if #answer == 1 and next_due < math.huge then answer[1] = exactly(next_due) end
return answer
"""

# ARGV: for each delivery the index of its queue and its member.
GIVE_BACK = f"""{_SHARED}
for position = 1, #ARGV, 2 do give_back(KEYS[tonumber(ARGV[position])], ARGV[position + 1]) end
for _, key in ipairs(KEYS) do wake(key) end
"""

# ARGV: how long they are held, and as above. A delivery that has returned stays returned.
EXTEND = f"""{_SHARED}
local returns = exactly(microseconds() + ARGV[1])
for position = 2, #ARGV, 2 do
    redis.call('ZADD', KEYS[tonumber(ARGV[position])] .. ':taken', 'XX', returns, ARGV[position + 1])
end
"""

# Returns for each queue how many offers wait or are taken, and for how many microseconds the first has been due, by
# the clock of Redis; empty if none wait.
DEPTH = f"""{_SHARED}
local present, answer = microseconds(), {{}}
for _, key in ipairs(KEYS) do
    local count, first = redis.call('ZCARD', key .. ':taken'), math.huge
    for _, priority in ipairs(redis.call('ZRANGE', key .. ':priorities', 0, -1)) do
        local offers = key .. ':offers:' .. priority
        local head = redis.call('ZRANGE', offers, 0, 0, 'WITHSCORES')
        count = count + redis.call('ZCARD', offers)
        if #head > 0 then first = math.min(first, tonumber(head[2])) end
    end
    answer[#answer + 1] = count
    answer[#answer + 1] = first < math.huge and exactly(math.max(present - first, 0)) or ''
end
return answer
"""
