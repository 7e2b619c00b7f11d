-- Record a late report in its attempt: a lost attempt becomes stale; one that ended by its time limit remains a
-- timeout. Both keep their own error, which notes the report. Nothing else changes.
-- $1 job, $2 scheduled_at, $3 serial, $4 token, $5 what the late report said
UPDATE attempts SET outcome = CASE outcome WHEN 'lost' THEN 'stale' ELSE outcome END,
       error = concat_ws(CASE WHEN error LIKE '%.' THEN ' ' ELSE '; ' END, error, $5::text)
 WHERE job = $1 AND scheduled_at = $2 AND serial = $3 AND token = $4
   AND (outcome = 'lost' OR (outcome = 'timeout' AND right(error, length($5::text)) <> $5::text))
