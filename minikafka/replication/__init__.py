"""Partition leadership and followership as pure state: ISR, high watermark, epochs, purgatories."""
