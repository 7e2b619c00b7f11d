-- $1 how many jobs, $2 seconds until the first is due, $3 their schedule, $4 how many jobs there are: the first gets
-- the number after; $5 seconds over which they are spread (0: all at one instant). Numbers are given, so that those of
-- one call follow each other.
WITH due AS MATERIALIZED (SELECT date_trunc('milliseconds', clock_timestamp() + make_interval(secs => $2)) AS at),
s AS (INSERT INTO schedules (stored, digest) VALUES ($3::jsonb, sha256($3::text::bytea))
    ON CONFLICT (digest) DO UPDATE SET stored = excluded.stored RETURNING schedule),
j AS (
    INSERT INTO jobs (job, id, name, partition, target, definition) OVERRIDING SYSTEM VALUE
    SELECT $4::bigint + n, gen_random_uuid(), 'bench-' || $4::bigint + n, n % 256, 'http',
           '{"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}'
      FROM generate_series(1, $1::integer) AS n RETURNING job, partition),
c AS (
    INSERT INTO cursors (job, next_tick, fire_at, partition, queue, schedule, priority)
    SELECT j.job, t.at, t.at, j.partition, 1, s.schedule, 5 FROM j, due, s, LATERAL (
        SELECT due.at + floor((j.job - $4::bigint - 1) * ($5::double precision * 1000 / $1::integer)) * interval
               '1 millisecond' AS at) t)
SELECT at AS due FROM due
