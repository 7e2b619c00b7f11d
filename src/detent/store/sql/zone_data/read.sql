-- The release of the zone data by which all next ticks were last looked at
SELECT tzdata FROM cluster
