-- Delete the records of elections after a month. $1 age, $2 the time as in history/list_expired
DELETE FROM elections WHERE at < least(now(), $2::timestamptz) - $1::interval AND (SELECT held_at IS NULL FROM cluster)
