-- Take dead runs that are to be forwarded; no other node takes them for a while. $1 limit, $2 for how long. The tenants
-- take turns among the longest due, because a broker that hangs holds its place for half a minute. The topic and the
-- key are those of the job as it is now; the payload is the one that the run had.
WITH due AS MATERIALIZED (
    SELECT letter, job, due_at FROM dead_letters WHERE due_at <= now() ORDER BY due_at LIMIT 20 * $1::bigint),
orphans AS (                                 -- of jobs that a node of an older release has purged
    DELETE FROM dead_letters d USING due
     WHERE d.letter = due.letter AND NOT EXISTS (SELECT FROM jobs j WHERE j.job = due.job)),
next AS MATERIALIZED (                       -- more than the limit: another node may be taking the first of them
    SELECT d.letter, row_number() OVER (PARTITION BY j.tenant ORDER BY d.due_at, d.letter) AS turn, d.due_at
      FROM due d JOIN jobs j USING (job) ORDER BY turn, d.due_at LIMIT 4 * $1::bigint),
waiting AS MATERIALIZED (
    SELECT n.letter FROM dead_letters n JOIN next USING (letter) WHERE n.due_at <= now()
     ORDER BY next.turn, next.due_at LIMIT $1::bigint FOR UPDATE OF n SKIP LOCKED),
taken AS (
    UPDATE dead_letters t SET due_at = now() + $2::interval, tries = t.tries + 1 FROM waiting
     WHERE t.letter = waiting.letter RETURNING t.*)
SELECT x.letter, x.job, x.scheduled_at, x.serial, x.token, x.attempt, x.reason, x.finished_at, x.tries,
       now() - x.made_at AS age, j.id, j.name, j.tenant, j.definition->>'timezone' AS timezone,
       j.definition->>'idempotency_key_template' AS template,
       coalesce(nullif(j.definition->'dead_letter_topic', 'null'), t.dead_letter_topic)::text AS topic,
       coalesce(x.payload, CASE WHEN x.revision = j.revision THEN j.definition->'payload' ELSE (
           SELECT r.definition->'payload' FROM job_revisions r WHERE r.job = x.job AND r.revision = x.revision)
       END)::text AS payload,
       (SELECT a.error FROM attempts a WHERE a.job = x.job AND a.scheduled_at = x.scheduled_at AND a.serial = x.serial
         ORDER BY a.token DESC, a.attempt DESC LIMIT 1) AS error
  FROM taken x JOIN jobs j USING (job) JOIN tenants t USING (tenant) ORDER BY x.letter
