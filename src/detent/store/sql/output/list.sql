-- Chunks of lines of a run of a tenant, in the order in which they were written. $1 job, $2 scheduled_at, $3 serial, $4
-- tenant, $5 limits of the caller or NULL, $6 attempt or NULL for all; behind this line: $7 token, $8 number; $9 how
-- many chunks
SELECT token, attempt, first, last, lines FROM run_logs
 WHERE job = $1::bigint AND scheduled_at = $2::timestamptz AND serial = $3::integer
   AND EXISTS (SELECT FROM jobs j WHERE j.job = $1::bigint AND j.tenant = $4::integer)
   AND ($5::jsonb IS NULL OR within_limits($1::bigint, $5::jsonb))
   AND ($6::integer IS NULL OR attempt = $6::integer)
   AND token >= $7::bigint AND (token > $7::bigint OR last > $8::integer)
 ORDER BY token, part LIMIT $9::integer
