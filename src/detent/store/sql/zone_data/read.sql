-- The release of the zone data with which all next ticks were last checked
SELECT tzdata FROM cluster
