"""Arrays on the device, and those of frameworks."""
