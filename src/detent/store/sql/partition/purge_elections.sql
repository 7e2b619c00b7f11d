-- Delete the records of elections after a month, but not the newest one of a partition before that: it says which node
-- led when the month began. $1 age, $2 the time as in history/list_expired
DELETE FROM elections e USING (SELECT least(now(), $2::timestamptz) - $1::interval AS at) expired
 WHERE e.at < expired.at AND (SELECT held_at IS NULL FROM cluster)
   AND EXISTS (SELECT FROM elections n WHERE n.partition = e.partition AND n.term > e.term AND n.at < expired.at)
