-- Ticks that this leader cannot fire or release. $1 node; arrays: $2 job, $3 kind, $4 tick, $5 generation, $6 why.
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE)
INSERT INTO set_aside AS s (job, kind, tick, generation, why, node)
SELECT v.job, v.kind, v.tick, v.generation, v.why, fence.node
  FROM fence, unnest($2::bigint[], $3::text[], $4::timestamptz[], $5::integer[], $6::text[]) AS v (job, kind, tick,
      generation, why)
 ORDER BY v.job, v.kind
ON CONFLICT (job, kind) DO UPDATE
   SET tick = excluded.tick, generation = excluded.generation, why = excluded.why, node = excluded.node,
       tried_at = now(), since = CASE WHEN (s.tick, s.generation) = (excluded.tick, excluded.generation) THEN s.since
       ELSE now() END
