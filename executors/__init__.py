"""What runs a graph or a plan: eagerly, as recorded graphs, or through another runtime."""
