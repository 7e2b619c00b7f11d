-- Count events of jobs in alerts. Arrays: $1 alert, $2 job, $3 kind, $4 events, $5 last event, $6 tick, $7 serial,
-- $8 detail
INSERT INTO alert_jobs AS m (alert, job, kind, events, fresh, last_at, tick, serial, detail)
SELECT v.alert, v.job, v.kind, v.events, v.events, v.last_at, v.tick, v.serial, v.detail
  FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::timestamptz[], $6::timestamptz[],
              $7::integer[], $8::text[]) AS v (alert, job, kind, events, last_at, tick, serial, detail)
 ORDER BY v.alert, v.job, v.kind
ON CONFLICT (alert, job, kind) DO UPDATE
   SET events = m.events + excluded.events, fresh = m.fresh + excluded.fresh, last_at = excluded.last_at,
       tick = excluded.tick, serial = excluded.serial, detail = excluded.detail, recovered_at = NULL,
       check_at = now() + interval '1 second'
