"""Model files: external data, metadata, saving."""
