-- Make a message about an alert. $1 rule, $2 alert, $3 event, $4 content
WITH counted AS (
    UPDATE alerts SET messages = messages + 1, last_message_at = now(), fresh_untracked = 0, flush_at = 'infinity',
           calm = false
     WHERE alert = $2::bigint)
INSERT INTO notices (rule, alert, event, content) VALUES ($1::bigint, $2::bigint, $3, $4::jsonb) RETURNING notice
