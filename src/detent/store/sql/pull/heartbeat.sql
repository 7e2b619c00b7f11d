-- Leases go on. $1 tenant; arrays: $2 job, $3 scheduled_at, $4 serial, $5 token, $6 lease. A lease that has run out goes on
-- too, as long as nobody has taken its run; one whose run is over its time limit does not. Returns positions, counted
-- from 1, with the new end and whether the run is asked to stop; what is not returned is lost.
WITH v AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::integer[], $5::bigint[], $6::interval[])
        WITH ORDINALITY AS t (job, scheduled_at, serial, token, lease, position)),
p AS MATERIALIZED (
    SELECT v.*, l.lane FROM (SELECT * FROM v ORDER BY job, scheduled_at, serial) v CROSS JOIN LATERAL (
        SELECT lane FROM pull_leases
         WHERE job = v.job AND scheduled_at = v.scheduled_at AND serial = v.serial AND token = v.token AND tenant = $1
           AND ends_at > now() FOR UPDATE) l),
u AS (
    UPDATE pull_leases l SET lease = p.lease, lease_until = least(now() + p.lease, l.ends_at) FROM p
     WHERE l.job = ANY (ARRAY(SELECT job FROM p)) AND l.job = p.job AND l.scheduled_at = p.scheduled_at AND l.serial = p.serial
    RETURNING l.job, l.lane, l.lease_until)
SELECT p.position, u.lease_until, coalesce(r.cancel, false) AS cancel
  FROM p JOIN u ON u.job = p.job AND u.lane = p.lane LEFT JOIN live_runs r ON r.job = ANY (ARRAY(SELECT job FROM p)) AND r.job = p.job AND r.lane = p.lane
