"""Fault scripts: faults that begin by triggers while other code runs, with counts of what they hit."""
