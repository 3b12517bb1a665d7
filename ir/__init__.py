"""The graph and its meaning."""
