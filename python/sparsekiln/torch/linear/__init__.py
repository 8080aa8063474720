"""Linear layers and products with a block-sparse matrix."""
