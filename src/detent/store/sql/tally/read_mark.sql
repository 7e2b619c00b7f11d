-- Through when history is folded, how far it can be by now ($1: what ended so long ago is surely on record), when jobs
-- were last counted, and the tenant if there is one only.
SELECT t.folded_until, now() - $1::interval AS foldable, now() - t.counted_at AS count_age, now() AS now,
       (SELECT CASE WHEN count(*) = 1 THEN min(tenant) END FROM tenants) AS only_tenant
  FROM tally t
