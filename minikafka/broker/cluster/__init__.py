"""What a broker knows of its cluster, and its calls to the active controller."""
