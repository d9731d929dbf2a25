"""The transaction coordinator of a broker, and the markers that it sends."""
