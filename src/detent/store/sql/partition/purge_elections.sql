-- The record of take-overs, after a month. $1 age, $2 as in expired_history
DELETE FROM elections WHERE at < least(now(), $2::timestamptz) - $1::interval AND (SELECT held_at IS NULL FROM cluster)
