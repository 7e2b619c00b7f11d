"""The REST API: a route reads its input, calls one verb of the store and renders the answer."""
