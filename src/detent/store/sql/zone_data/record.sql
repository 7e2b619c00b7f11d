-- Record that all next ticks were checked with this release of the zone data. $1 release
UPDATE cluster SET tzdata = $1::text WHERE tzdata IS NULL OR tzdata < $1::text COLLATE "C"
