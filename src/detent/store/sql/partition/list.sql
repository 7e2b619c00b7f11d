-- Every partition, its leader, and since when.
SELECT partition, holder, term, now() - taken_at AS age FROM partitions ORDER BY partition
