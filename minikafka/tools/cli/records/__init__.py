"""`produce` and `consume`: records from standard input to topics, and back."""
