"""Compare zkplan with other executors, which run the same graphs in processes of their own."""
