"""The arguments and options of commands, with their completion."""
