"""Reading of topics: options, planning of offset ranges, and fetching."""
