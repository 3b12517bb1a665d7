"""What kernels are made of: types, layouts, expressions, schedules, and the text that all share."""
