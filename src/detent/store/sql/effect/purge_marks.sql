-- Delete marks of effects that are no longer kept. $1 how many at most. One that a handler renews now is left alone.
WITH over AS MATERIALIZED (
    SELECT scope, key FROM effect_marks WHERE kept_until <= now() ORDER BY kept_until LIMIT $1::integer
       FOR UPDATE SKIP LOCKED)
DELETE FROM effect_marks m USING over WHERE m.scope = over.scope AND m.key = over.key RETURNING m.key
