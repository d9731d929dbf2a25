"""The public names of the isolation checker (README.md)."""
