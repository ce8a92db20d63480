"""Turn values into bytes, seal them, and store them."""
