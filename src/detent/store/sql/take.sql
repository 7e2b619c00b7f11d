-- Take partitions that nobody alive holds, or that we hold without knowing it (the reply was lost), with a higher term. $1 me, $2 incarnation, $3 wanted partitions.
-- OFFSET 0 keeps the question a question: as an anti-join it would not be asked again of a row that changed hands while
-- this statement waited for it, and the partition would be taken from a node that is alive.
WITH me AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
p AS MATERIALIZED (
    SELECT partition FROM partitions WHERE partition = ANY ($3::smallint[])
       AND (holder = $1 OR NOT EXISTS (SELECT FROM nodes n WHERE n.node = holder AND NOT n.evicted OFFSET 0)) ORDER BY partition FOR UPDATE)
UPDATE partitions t SET holder = $1, term = greatest(t.term, $2::bigint << 32) + 1, taken_at = now() FROM p, me
 WHERE t.partition = p.partition RETURNING t.partition, t.term
