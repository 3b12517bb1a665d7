"""What runs a plan: eagerly, as recorded graphs, or through another runtime."""
