"""What every request handler needs: the services, the context of a request, its parts and its metrics."""
