-- First statement of a claim under limits. $1 their numbers. Not all returned: another session claims under one of
-- them, or it was dropped.
SELECT number FROM limits WHERE number = ANY ($1::integer[]) ORDER BY number FOR NO KEY UPDATE SKIP LOCKED
