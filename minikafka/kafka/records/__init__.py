"""Record batches v2 as opaque bytes: header checks, CRC, compression, and decoding of records on demand."""
