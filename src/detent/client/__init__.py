"""One HTTP client for the REST API, synchronous and asynchronous, with its verbs described once."""
