-- Insert schedules, some of which may exist already. In the order of their key, so that two batches cannot deadlock.
-- $1 stored forms, $2 digests
INSERT INTO schedules (stored, digest)
SELECT stored::jsonb, digest FROM unnest($1::text[], $2::bytea[]) AS v (stored, digest) ORDER BY digest
ON CONFLICT (digest) DO NOTHING
