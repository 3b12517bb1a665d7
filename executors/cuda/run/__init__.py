"""A plan on a device: bound, recorded, called, timed."""
