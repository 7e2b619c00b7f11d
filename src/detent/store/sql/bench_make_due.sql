-- $1 how many jobs, $2 seconds until they are due
WITH due AS MATERIALIZED (SELECT date_trunc('milliseconds', now() + make_interval(secs => $2)) AS at),
s AS (INSERT INTO schedules (stored, digest) VALUES ($3::jsonb, '\x00') ON CONFLICT (digest) DO UPDATE SET stored = excluded.stored RETURNING schedule),
j AS (
    INSERT INTO jobs (id, name, partition, target, definition)
    SELECT gen_random_uuid(), 'bench-' || n, n % 256, 'http', '{"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}'
      FROM generate_series(1, $1::integer) AS n RETURNING job, partition),
c AS (
    INSERT INTO cursors (job, next_tick, fire_at, partition, queue, schedule)
    SELECT j.job, due.at, due.at, j.partition, 1, s.schedule FROM j, due, s)
SELECT at AS due FROM due
