"""What import and export rules see of a model, and what both directions share."""
