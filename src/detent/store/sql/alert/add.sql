-- Open alerts. Arrays: $1 tenant, $2 rule, $3 the only job or NULL, $4 severity, $5 events, $6 untracked events, $7
-- when the first message may be made. Returns them in that order.
INSERT INTO alerts (tenant, rule, only_job, severity, events, untracked, fresh_untracked, flush_at)
SELECT v.tenant, v.rule, v.only_job, v.severity, v.events, v.untracked, v.untracked, v.flush_at
  FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bigint[], $7::timestamptz[])
       WITH ORDINALITY AS v (tenant, rule, only_job, severity, events, untracked, flush_at, place) ORDER BY v.place
RETURNING alert
