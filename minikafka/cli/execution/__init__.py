"""The run of the asynchronous part of a command, and what it says while it waits."""
