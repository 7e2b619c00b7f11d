-- Ticks fire again. What jobs are expected to do is judged from now on; what was judged in a time that had not come
-- yet, as the clock was wrong, is looked at now.
WITH resumed AS (
    UPDATE cluster SET held_at = NULL, held_by = NULL, held_reason = NULL, resumed_at = now() WHERE held_at IS NOT NULL
      RETURNING one),
restarted AS (
    UPDATE expectations SET judged = now(), check_at = now()
     WHERE judged > now() AND EXISTS (SELECT FROM resumed))
SELECT one FROM resumed
