"""What not every plan needs: gates, limits, leases, schedules, keys, updates, retries, repairs."""
