"""Running of the asynchronous part of a command, and the notes that it prints while it waits."""
