"""The command line: one module per group of commands, imported when one of its commands is called."""
