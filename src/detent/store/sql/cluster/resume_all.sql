-- Ticks fire again. Expectations are evaluated from now on; those that were evaluated at a time in the future, because
-- the clock was wrong, are evaluated again from now.
WITH resumed AS (
    UPDATE cluster SET held_at = NULL, held_by = NULL, held_reason = NULL, resumed_at = now() WHERE held_at IS NOT NULL
      RETURNING one),
restarted AS (
    UPDATE expectations SET judged = now(), check_at = now()
     WHERE judged > now() AND EXISTS (SELECT FROM resumed))
SELECT one FROM resumed
