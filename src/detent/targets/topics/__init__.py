"""Topic targets: one message per attempt, to a broker. Each protocol has a publisher in a module of its own."""
