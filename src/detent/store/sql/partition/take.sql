-- Take partitions, with a higher term, and put it on record. $1 me, $2 incarnation, $3 partitions, $4 the number of the
-- nomination for each, NULL where the database decides.
-- Without a nomination: only what nobody alive holds, or what we hold without knowing it (the reply was lost). With one:
-- only if it is newer than the last that was accepted, or that very one. A node that loses a partition while alive may
-- still fire it once more, which is harmless: the cursor gives one run, and its owner is alive.
-- Taken without one, the next nomination is good whatever its number: a service that was restored from a backup, or
-- exchanged for another, counts from below.
-- What a node that ended had led is put on record under its name.
-- OFFSET 0 keeps the question a question: as an anti-join it would not be asked again of a row that changed hands while
-- this statement waited for it, and the partition would be taken from a node that is alive.
WITH me AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
v AS MATERIALIZED (SELECT * FROM unnest($3::smallint[], $4::bigint[]) AS t (partition, number)),
p AS MATERIALIZED (
    SELECT t.partition, v.number, t.holder AS holder_before FROM partitions t JOIN v ON v.partition = t.partition
     WHERE CASE WHEN v.number IS NULL
                THEN t.holder = $1 OR NOT EXISTS (SELECT FROM nodes n WHERE n.node = t.holder AND NOT n.evicted OFFSET 0)
                ELSE v.number > t.nomination OR v.number = t.nomination AND coalesce(t.holder, $1) = $1 END
     ORDER BY t.partition FOR UPDATE OF t),
u AS (
    UPDATE partitions t SET holder = $1, term = greatest(t.term, $2::bigint << 22) + 1, taken_at = now(),
           nomination = coalesce(p.number, 0)
      FROM p, me WHERE t.partition = p.partition RETURNING t.partition, t.term, t.nomination),
e AS (INSERT INTO elections (partition, term, node, nomination) SELECT partition, term, $1, nomination FROM u),
o AS (
    INSERT INTO node_take_overs AS o (node, taker, partitions, at)
    SELECT f.node, $1, count(*), now() FROM u JOIN p ON p.partition = u.partition JOIN former_nodes f ON f.node = p.holder_before
     GROUP BY f.node ORDER BY f.node
    ON CONFLICT (node, taker) DO UPDATE SET partitions = o.partitions + excluded.partitions, at = excluded.at)
SELECT partition, term FROM u
