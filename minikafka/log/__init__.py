"""A partition's records on disk in Kafka's own file formats, over the Storage port."""
