"""Resampling of images, and crops."""
