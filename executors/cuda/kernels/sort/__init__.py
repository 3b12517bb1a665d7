"""Sorting, selection of the largest, and what is found by them."""
