"""Record batches v2 kept opaque: header checks, CRC, compression, and the records when asked."""
