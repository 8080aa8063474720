"""Block-sparse convolutions, and transposed ones."""
