-- Ticks fire again.
UPDATE cluster SET held_at = NULL, held_by = NULL, held_reason = NULL WHERE held_at IS NOT NULL RETURNING one
