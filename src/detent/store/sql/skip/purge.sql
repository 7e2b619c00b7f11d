-- Delete skips whose ticks are older than the history that is kept and that nothing reads again: the schedule is past
-- them, and they are not to be caught up. $1 days
DELETE FROM skips s WHERE s.tick < now() - make_interval(days => $1::integer + 1)
   AND EXISTS (SELECT FROM cursors c WHERE c.job = s.job AND c.last_tick >= s.tick)
   AND NOT EXISTS (
       SELECT FROM catchups k WHERE k.job = s.job AND k.kind = 'missed' AND s.tick BETWEEN k.next_tick AND k.until)
   AND (SELECT held_at IS NULL FROM cluster)
