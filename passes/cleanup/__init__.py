"""Passes that make a graph smaller or more regular, whatever ops it has."""
