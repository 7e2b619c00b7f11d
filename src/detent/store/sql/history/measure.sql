-- How many runs a range of history holds, to choose the size of the next range. $1 after, $2 up to and including, $3
-- jobs or NULL
SELECT count(*) AS runs FROM run_history
 WHERE scheduled_at > $1::timestamptz AND scheduled_at <= $2::timestamptz
   AND ($3::bigint[] IS NULL OR job = ANY ($3::bigint[]))
