-- Enqueue a run in the transaction of the connection. When it is enqueued is part of its payload: detent keeps only the
-- time at which a run is due.
SELECT e.run, n.enqueued_at
  FROM (SELECT clock_timestamp() AS enqueued_at) n
 CROSS JOIN LATERAL {schema}.enqueue(
           %(task)s::text, %(payload)s::jsonb || jsonb_build_object('enqueued_at', n.enqueued_at),
           at => %(at)s::timestamptz, priority => %(priority)s::integer, queue => %(queue)s::text,
           tenant => %(tenant)s::text) e
