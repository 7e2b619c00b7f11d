-- $1 part, $2 where its rows are, $3 how many, $4 the digest of that file
UPDATE history_parts SET archive = $2::text, rows = $3::bigint, sha256 = $4::text, archived_at = now()
 WHERE part = $1::bigint
