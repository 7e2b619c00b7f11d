-- Whether a key was ever created: from then on the cluster requires keys, even if all are revoked or expired
SELECT EXISTS (SELECT FROM api_keys) AS found
