"""What enters and leaves the transaction coordinator: requests, responses and commands."""
