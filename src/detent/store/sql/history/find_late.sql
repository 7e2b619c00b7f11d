-- Whether anything in a part of history ended after $1. Of runs this is answered by their BRIN index; attempts are few.
SELECT EXISTS (SELECT FROM {name} WHERE finished_at > $1::timestamptz) AS late
