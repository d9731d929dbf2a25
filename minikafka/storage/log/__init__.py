"""The log of one replica in Kafka's file formats, over the Storage port."""
