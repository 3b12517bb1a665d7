"""What turns models of other ecosystems into graphs, and graphs back into models."""
