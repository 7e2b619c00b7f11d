-- No tick fires anywhere from here on. What was held before stays held since then. $1 by whom, $2 reason
UPDATE cluster SET held_at = coalesce(held_at, now()), held_by = $1, held_reason = $2 RETURNING held_at, held_by,
       held_reason
