-- Numbers of jobs, oldest first. $1 tenant, $2 statuses, $3 after this number, $4 up to and including, $5 limit.
-- Filters, each may be NULL: $6 prefix of the name, $7 words that the name contains, $8 tags the job has, $9 kinds of
-- target, $10 queues; next tick before $11 (a time) or $12 (from now on), and after $13 or $14; $15 owner;
-- $16 limits of the caller.
SELECT found.job FROM unnest($2::text[]) AS s (status) CROSS JOIN LATERAL (
    SELECT j.job FROM jobs j
     WHERE j.tenant = $1::integer AND j.status = s.status AND j.job > $3::bigint AND j.job <= $4::bigint
       AND ($6::text IS NULL OR starts_with(j.name, $6::text))
       AND ($7::text[] IS NULL OR NOT EXISTS (
            SELECT FROM unnest($7::text[]) AS w (word)
             WHERE strpos(lower(j.name COLLATE "default"), lower(w.word COLLATE "default")) = 0))
       AND ($8::text[] IS NULL OR (j.tags <> '{}' AND j.tags @> $8::text[]))
       AND ($9::text[] IS NULL OR j.target = ANY ($9::text[]))
       AND ($10::text[] IS NULL OR EXISTS (
            SELECT FROM cursors c JOIN queues q USING (queue) WHERE c.job = j.job AND q.name = ANY ($10::text[])))
       AND (coalesce($11::timestamptz, now() + $12::interval) IS NULL OR EXISTS (
            SELECT FROM cursors c WHERE c.job = j.job
                AND c.next_tick < coalesce($11::timestamptz, now() + $12::interval)))
       AND (coalesce($13::timestamptz, now() + $14::interval) IS NULL OR EXISTS (
            SELECT FROM cursors c WHERE c.job = j.job
                AND c.next_tick > coalesce($13::timestamptz, now() + $14::interval)))
       AND ($15::text IS NULL OR j.owner = $15::text)
       AND ($16::jsonb IS NULL OR within_limits(j.job, $16::jsonb))
     ORDER BY j.job LIMIT $5::integer) found
 ORDER BY found.job LIMIT $5::integer
