"""Directories of output files: on a file system with locks and renames, or on a store that has neither."""
