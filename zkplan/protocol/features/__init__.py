"""Features of some plans: gates, limits, leases, schedules, keys, updates, retries, repairs."""
