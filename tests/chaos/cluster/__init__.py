"""What the faults break: servers, processes, links, disks, clocks."""
