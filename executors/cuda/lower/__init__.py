"""What a step becomes, as plain data: launches, and which families answer for an op."""
