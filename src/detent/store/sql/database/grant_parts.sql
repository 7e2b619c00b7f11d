DO {mark} DECLARE part text; BEGIN
    FOR part IN SELECT format('%I.%I', '{schema}', name) FROM "{schema}".history_parts WHERE dropped_at IS NULL LOOP
        IF to_regclass(part) IS NOT NULL THEN
            EXECUTE format('GRANT SELECT, DELETE ON %s TO %s', part, '{role}');
        END IF;
    END LOOP;
END {mark};
