"""Record batches as Arrow columns, and the reverse."""
