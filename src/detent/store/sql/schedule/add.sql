-- Schedules that may be there already. In the order of their key, so that two batches cannot wait for each other.
-- $1 stored forms, $2 digests
INSERT INTO schedules (stored, digest)
SELECT stored::jsonb, digest FROM unnest($1::text[], $2::bytea[]) AS v (stored, digest) ORDER BY digest
ON CONFLICT (digest) DO NOTHING
