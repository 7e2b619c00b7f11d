-- As job/list, for jobs that are not deleted and whose names have a common prefix, along the index of names. The same
-- parameters, of which $6 must be given.
SELECT j.job FROM jobs j
 WHERE j.tenant = $1::integer AND j.status <> 'deleted' AND starts_with(j.name, $6::text)
   AND j.status = ANY ($2::text[]) AND j.job > $3::bigint AND j.job <= $4::bigint
   AND ($7::text[] IS NULL OR NOT EXISTS (
        SELECT FROM unnest($7::text[]) AS w (word)
         WHERE strpos(lower(j.name COLLATE "default"), lower(w.word COLLATE "default")) = 0))
   AND ($8::text[] IS NULL OR (j.tags <> '{}' AND j.tags @> $8::text[]))
   AND ($9::text[] IS NULL OR j.target = ANY ($9::text[]))
   AND ($10::text[] IS NULL OR EXISTS (
        SELECT FROM cursors c JOIN queues q USING (queue) WHERE c.job = j.job AND q.name = ANY ($10::text[])))
   AND (coalesce($11::timestamptz, now() + $12::interval) IS NULL OR EXISTS (
        SELECT FROM cursors c WHERE c.job = j.job AND c.next_tick < coalesce($11::timestamptz, now() + $12::interval)))
   AND (coalesce($13::timestamptz, now() + $14::interval) IS NULL OR EXISTS (
        SELECT FROM cursors c WHERE c.job = j.job AND c.next_tick > coalesce($13::timestamptz, now() + $14::interval)))
   AND ($15::text IS NULL OR j.owner = $15::text)
   AND ($16::jsonb IS NULL OR within_limits(j.job, $16::jsonb))
 ORDER BY j.job LIMIT $5::integer
