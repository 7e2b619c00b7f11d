-- Occurrences that were to be skipped and have long passed. $1 for how long they are kept
DELETE FROM skips WHERE tick < now() - $1::interval AND (SELECT held_at IS NULL FROM cluster)
