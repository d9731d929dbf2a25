"""What the coordinator gets and returns: requests, responses, commands, and the records of its topic."""
