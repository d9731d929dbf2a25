"""The commands that show what a cluster does and what is wrong with it."""
