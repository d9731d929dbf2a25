"""What enters and leaves the transaction coordinator: requests, responses, commands and records."""
