"""Results of executors and models beside each other."""
