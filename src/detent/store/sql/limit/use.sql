-- After a claim under limits, in its transaction. $1 their numbers, $2 how many were claimed; which: $3 job, $4 lane.
-- The runs count against the limits for as long as they have an owner.
WITH marked AS (
    UPDATE live_runs r SET limited = true FROM unnest($3::bigint[], $4::integer[]) AS batch (job, lane)
     WHERE r.job = ANY ($3::bigint[]) AND r.job = batch.job AND r.lane = batch.lane AND NOT r.limited)
UPDATE limits l SET filled_at = t.at, tokens = -$2::integer + CASE
       WHEN l.filled_at > t.at THEN greatest(l.rate_per_second, 1)
       ELSE least(greatest(l.rate_per_second, 1), l.tokens + l.rate_per_second * extract(epoch
           FROM t.at - l.filled_at)) END
  FROM (SELECT clock_timestamp() AS at) t WHERE l.number = ANY ($1::integer[]) AND l.rate_per_second IS NOT NULL
