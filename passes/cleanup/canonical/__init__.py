"""The rules of the canonicalise pass, one table per subject. All are exact."""
