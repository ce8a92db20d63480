"""What the faults of a run break: servers, disks, clocks, links, processes."""
