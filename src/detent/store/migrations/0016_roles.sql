-- detent: compatible with 0009
-- A role for run time that owns nothing: what needs the owner of history is done by functions of the owner, each of which
-- does one thing to one partition of history. Their search_path ends with pg_temp, so that no table of the caller's session
-- is taken for one of these. `store/grants.py` lists what such a role is granted.

CREATE OR REPLACE FUNCTION make_history_part(of_table text, at timestamptz) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    midnight timestamptz := date_trunc('day', at, 'UTC');
    lower timestamptz;
    upper timestamptz;
    child text;
    privilege record;
BEGIN
    IF of_table NOT IN ('run_history', 'attempts') OR of_table IS NULL THEN
        RAISE EXCEPTION '% is no table of history', of_table USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF EXISTS (SELECT FROM history_bounds b WHERE b.parent = of_table AND b.since <= at AND at < b.until AND NOT b.detaching) THEN
        RETURN NULL;
    END IF;
    -- The second of two nodes waits here, readers and settles do not.
    EXECUTE format('LOCK TABLE %I IN SHARE UPDATE EXCLUSIVE MODE', of_table);
    FOR child IN SELECT b.name FROM history_bounds b WHERE b.parent = of_table AND b.since <= at AND at < b.until LOOP
        IF EXISTS (SELECT FROM history_bounds b WHERE b.name = child AND NOT b.detaching) THEN
            RETURN NULL;
        END IF;
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I FINALIZE', of_table, child);
    END LOOP;
    SELECT max(b.until) INTO lower FROM history_bounds b WHERE b.parent = of_table AND b.until <= at;
    SELECT min(b.since) INTO upper FROM history_bounds b WHERE b.parent = of_table AND b.since > at;
    IF upper IS NULL OR midnight >= date_trunc('day', now(), 'UTC') THEN
        upper := midnight + interval '1 day';
    END IF;
    IF at > now() + interval '30 days' THEN
        lower := greatest(lower, midnight);
    END IF;
    child := of_table || '_' || to_char((upper - interval '1 day') AT TIME ZONE 'UTC', 'YYYYMMDD');
    WHILE to_regclass(quote_ident(child)) IS NOT NULL LOOP      -- one of that name is detached and not dropped yet
        child := child || '_';
    END LOOP;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', child, of_table);
    -- Once detached, it is read by its own name, and emptied by those who write to history.
    FOR privilege IN
        SELECT CASE a.privilege_type WHEN 'INSERT' THEN 'DELETE' ELSE 'SELECT' END AS kind, a.grantee::regrole AS grantee
          FROM pg_class c, aclexplode(c.relacl) a
         WHERE c.oid = of_table::regclass AND a.grantee NOT IN (0, c.relowner) AND a.privilege_type IN ('SELECT', 'INSERT') LOOP
        EXECUTE format('GRANT %s ON %I TO %s', privilege.kind, child, privilege.grantee);
    END LOOP;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%L)', of_table, child,
                   CASE WHEN lower IS NULL THEN 'MINVALUE' ELSE quote_literal(lower) END, upper);
    UPDATE history_parts SET dropped_at = now() WHERE name = child AND dropped_at IS NULL;      -- dropped by hand
    INSERT INTO history_parts (parent, name, since, until) VALUES (of_table, child, coalesce(lower, '-infinity'), upper);
    RETURN child;
END $$;

-- For a role that does not own history and so cannot detach concurrently. Others wait at most as long as this does: 100 ms.
CREATE FUNCTION detach_history_part(child text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part record;
BEGIN
    SELECT b.parent, b.detaching INTO part FROM history_bounds b JOIN history_parts p USING (parent, name)
     WHERE b.name = child AND p.dropped_at IS NULL AND b.until <= now();
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is no partition of past history', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I %s', part.parent, child, CASE WHEN part.detaching THEN 'FINALIZE' END);
END $$;

-- Drops a former partition of history, and nothing else, whatever has its name.
CREATE OR REPLACE FUNCTION drop_history_part(child text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass(quote_ident(child)) IS NULL THEN
        RETURN true;
    END IF;
    IF NOT EXISTS (SELECT FROM history_parts WHERE name = child AND dropped_at IS NULL) THEN
        RAISE EXCEPTION '% is no partition of history', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', child);
    IF (SELECT relispartition FROM pg_class WHERE oid = to_regclass(quote_ident(child))) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %I', child);
    RETURN true;
END $$;

DO $$
DECLARE
    signature text;
BEGIN
    FOREACH signature IN ARRAY ARRAY[
        'make_history_part(text, timestamptz)', 'detach_history_part(text)', 'drop_history_part(text)'] LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', signature, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', signature);
    END LOOP;
END $$;
ALTER FUNCTION detach_history_part(text) SET lock_timeout = '100ms';
