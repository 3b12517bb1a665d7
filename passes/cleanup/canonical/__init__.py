"""The rules of the canonicalize pass, one table per subject. All are exact."""
