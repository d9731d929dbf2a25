"""What a log knows besides its records: leader epochs, producers and missing offsets."""
