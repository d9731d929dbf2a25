"""The command line: one module per family of commands, imported when one of them is called."""
