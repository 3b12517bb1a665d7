"""Passes that compute one op into the weights, or the attributes, of another."""
