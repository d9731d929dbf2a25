"""Commands that judge clients: `verdict` their histories, and `run` a command with a temporary cluster."""
