-- Delete some of the on-demand runs of these jobs that wait, of their keys, and of the marks of their effects. $1 jobs,
-- which have ended, so that no worker claims them; $2 how many of each. The runs leave no row of history, which would
-- be deleted next.
WITH waiting AS MATERIALIZED (
    SELECT b.* FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
        (SELECT serial, scheduled_at, job FROM backlog WHERE job = v.job AND NOT parked LIMIT $2::integer)
        UNION ALL
        (SELECT serial, scheduled_at, job FROM backlog WHERE job = v.job AND parked LIMIT $2::integer)) b
     LIMIT $2::integer),
gone_backlog AS (
    DELETE FROM backlog b WHERE b.serial = ANY (ARRAY(SELECT serial FROM waiting))
       AND ((b.serial, b.scheduled_at, b.job) IN (SELECT serial, scheduled_at, job FROM waiting)) IS TRUE
    RETURNING b.job),
gone_unique_keys AS (
    DELETE FROM unique_keys k USING (
        SELECT job, key FROM unique_keys WHERE job = ANY ($1::bigint[]) LIMIT $2::integer) few
     WHERE k.job = few.job AND k.key = few.key RETURNING k.job),
gone_effect_marks AS (
    DELETE FROM effect_marks m USING (
        SELECT scope, key FROM effect_marks WHERE scope = ANY ($1::bigint[]) LIMIT $2::integer) few
     WHERE m.scope = few.scope AND m.key = few.key RETURNING m.scope),
gone_key_places AS (
    DELETE FROM key_places k USING (
        SELECT scope, key, place FROM key_places WHERE scope = ANY ($1::bigint[]) LIMIT $2::integer) few
     WHERE k.scope = few.scope AND k.key = few.key AND k.place = few.place RETURNING k.scope),
gone_key_rates AS (
    DELETE FROM key_rates k USING (
        SELECT scope, key FROM key_rates WHERE scope = ANY ($1::bigint[]) LIMIT $2::integer) few
     WHERE k.scope = few.scope AND k.key = few.key RETURNING k.scope)
SELECT 'backlog' AS name, count(*) AS rows FROM gone_backlog
UNION ALL SELECT 'unique_keys', count(*) FROM gone_unique_keys
UNION ALL SELECT 'effect_marks', count(*) FROM gone_effect_marks
UNION ALL SELECT 'key_places', count(*) FROM gone_key_places
UNION ALL SELECT 'key_rates', count(*) FROM gone_key_rates
