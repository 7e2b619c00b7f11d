-- Insert the newest version of a secret. $1 tenant, $2 name, $3 version, $4 key id, $5 wrapped data key, $6 nonce,
-- $7 ciphertext
INSERT INTO secret_versions (tenant, name, version, key_id, wrapped, nonce, ciphertext)
VALUES ($1, $2, $3, $4, $5, $6, $7)
