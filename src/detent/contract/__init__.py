"""The shapes of the public API, one module per noun. Field names, their order and their meaning are the contract."""
