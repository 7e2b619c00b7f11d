-- Why a job is paused, until when, and what then becomes of the ticks of the pause. What is NULL stays as it is:
-- without a time somebody has to resume it. $1 job, $2 reason, $3 until, $4 on_resume. Nothing returned: it is not
-- paused any more.
UPDATE jobs SET reason = coalesce($2::text, reason), paused_until = coalesce($3::timestamptz, paused_until),
       on_resume = coalesce($4::text, on_resume), updated_at = now()
 WHERE job = $1::bigint AND status = 'paused' RETURNING job
