"""Graphs that torch.compile gives, and how their results lie in memory."""
