"""Tools around the product: benchmarks and the demo."""
