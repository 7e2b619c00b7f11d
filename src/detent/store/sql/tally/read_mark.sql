-- Up to when history is folded, up to when it can be folded now ($1: after this time a run that ended is certainly
-- recorded), when jobs were last counted, and the tenant if there is only one.
SELECT t.folded_until, now() - $1::interval AS foldable, now() - t.counted_at AS count_age, now() AS now,
       (SELECT CASE WHEN count(*) = 1 THEN min(tenant) END FROM tenants) AS only_tenant
  FROM tally t
