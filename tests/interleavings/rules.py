"""What must hold of on-demand runs in every state that commits, and not only at the end.

A unique key is not stored with its run; the actors put it into the payload, which goes wherever the run goes.
"""

from __future__ import annotations

from typing import Any

RULES = """
WITH unfinished AS MATERIALIZED (
    SELECT job, scheduled_at, serial, payload FROM backlog
    UNION ALL SELECT job, scheduled_at, serial, payload FROM live_runs)
SELECT format('%s@%s#%s is in %s places', job, scheduled_at, serial, count(*))
  FROM (SELECT job, scheduled_at, serial FROM unfinished
        UNION ALL SELECT job, scheduled_at, serial FROM run_history) everywhere
 GROUP BY job, scheduled_at, serial HAVING count(*) > 1
UNION ALL
SELECT format('the unique key %s has %s unfinished runs', payload ->> 'unique', count(*)) FROM unfinished
 WHERE payload ? 'unique' GROUP BY job, payload ->> 'unique' HAVING count(*) > 1
UNION ALL
-- A run in a lane that waits for a place of its key is not ready: its not_before is infinity.
SELECT format('the concurrency key %s has %s live runs', r.key, count(*))
  FROM live_runs r JOIN cursors c USING (job) JOIN jobs j USING (job)
 WHERE r.key IS NOT NULL AND r.not_before < 'infinity'
 GROUP BY CASE WHEN c.key_shared THEN -j.tenant ELSE r.job END, r.key, c.key_limit
HAVING count(*) > coalesce(c.key_limit, 1)
UNION ALL
SELECT format('job %s has %s live runs in %s lanes', c.job, count(*), c.lanes)
  FROM live_runs r JOIN cursors c USING (job)
 WHERE NOT c.task AND r.lane >= 0 GROUP BY c.job, c.lanes HAVING count(*) > greatest(c.lanes, 1)
"""


async def broken_rules(admin: Any) -> list[str]:
    return [row[0] for row in await admin.fetch(RULES)]
