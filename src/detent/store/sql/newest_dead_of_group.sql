-- As dead_letters, of one group, among the newest so many: to find a rare group among very many, an error must be read of each.
-- $7 group of errors, $8 how many are looked at
SELECT (d.h).job, (d.h).scheduled_at, (d.h).serial, (d.h).status, (d.h).reason, (d.h).attempt, (d.h).token, (d.h).node,
       (d.h).revision, (d.h).started_at, (d.h).finished_at, (d.h).result, (d.h).ticks, (d.h).until
  FROM (SELECT h FROM run_history h
         WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded'
           AND (h.scheduled_at, h.job, h.serial) < ($2::timestamptz, $3::bigint, $4::integer)
           AND EXISTS (SELECT FROM jobs j WHERE j.job = h.job AND j.tenant = $1::integer)
           AND ($6::bigint IS NULL OR h.job = $6::bigint)
         ORDER BY h.scheduled_at DESC, h.job DESC, h.serial DESC LIMIT $8::bigint) d
 WHERE $7::text = dead_group(d.h)
 ORDER BY (d.h).scheduled_at DESC, (d.h).job DESC, (d.h).serial DESC LIMIT $5::integer
