-- Why a job is paused, until when, and what happens to the ticks of the pause afterwards. NULL keeps the present value;
-- without an end time the job stays paused until it is resumed. $1 job, $2 reason, $3 until, $4 on_resume. Nothing
-- returned: it is no longer paused.
UPDATE jobs SET reason = coalesce($2::text, reason), paused_until = coalesce($3::timestamptz, paused_until),
       on_resume = coalesce($4::text, on_resume), updated_at = now()
 WHERE job = $1::bigint AND status = 'paused' RETURNING job
