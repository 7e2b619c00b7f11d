-- detent: compatible with 0009
-- Schedules of the kinds `combined` (several, with exclusions) and `delay` (counted from the end of the run before). Nodes
-- that do not know this migration cannot read them, so registrations of such jobs wait until all do.
COMMENT ON COLUMN cursors.next_tick IS
    'The next tick; NULL: paused, completed or deleted. Of a schedule of the kind delay: the next look at the run before.';
