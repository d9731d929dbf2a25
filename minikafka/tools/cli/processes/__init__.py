"""The commands for the processes of a cluster: start, stop, restart, faults and logs."""
