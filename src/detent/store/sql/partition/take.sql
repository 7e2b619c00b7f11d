-- Take partitions, with a higher term, and record the elections. $1 this node, $2 incarnation, $3 partitions, $4 the
-- number of the nomination for each, NULL where the database decides.
-- Without a nomination: only partitions that no live node holds, or that this node holds without knowing it (the reply
-- was lost). With one: only if it is newer than the last that was accepted, or the same. A node that loses a partition
-- while alive may still fire it once more, which is harmless: the cursor gives one run, and its owner is alive.
-- After a partition is taken without a nomination, the next nomination is accepted whatever its number: a coordinator
-- that was restored from a backup, or replaced by another, starts from a lower number.
-- Partitions that an ended node led are also recorded as take-overs from that node.
-- OFFSET 0 keeps the sub-select as it is: as an anti-join it would not be evaluated again for a row that changed leader
-- while this statement waited for it, and the partition would be taken from a live node.
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
batch AS MATERIALIZED (SELECT * FROM unnest($3::smallint[], $4::bigint[]) AS t (partition, number)),
locked AS MATERIALIZED (
    SELECT t.partition, batch.number, t.holder AS holder_before
      FROM partitions t JOIN batch ON batch.partition = t.partition
     WHERE CASE WHEN batch.number IS NULL
                THEN t.holder = $1
                     OR NOT EXISTS (SELECT FROM nodes n WHERE n.node = t.holder AND NOT n.evicted OFFSET 0)
                ELSE batch.number > t.nomination OR batch.number = t.nomination AND coalesce(t.holder, $1) = $1 END
     ORDER BY t.partition FOR UPDATE OF t),
taken AS (
    UPDATE partitions t SET holder = $1, term = greatest(t.term, $2::bigint << 22) + 1, taken_at = now(),
           nomination = coalesce(locked.number, 0)
      FROM locked, fence WHERE t.partition = locked.partition RETURNING t.partition, t.term, t.nomination),
recorded AS (
    INSERT INTO elections (partition, term, node, nomination) SELECT partition, term, $1, nomination FROM taken),
credited AS (
    INSERT INTO node_take_overs AS o (node, taker, partitions, at)
    SELECT f.node, $1, count(*), now()
      FROM taken JOIN locked ON locked.partition = taken.partition JOIN former_nodes f ON f.node = locked.holder_before
     GROUP BY f.node ORDER BY f.node
    ON CONFLICT (node, taker) DO UPDATE SET partitions = o.partitions + excluded.partitions, at = excluded.at)
SELECT partition, term FROM taken
