-- First statement of a claim under limits. $1 their numbers. Not all returned: somebody else claims under one of them,
-- or it is gone.
SELECT number FROM limits WHERE number = ANY ($1::integer[]) ORDER BY number FOR NO KEY UPDATE SKIP LOCKED
