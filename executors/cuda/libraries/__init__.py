"""NVIDIA's libraries, each as calls that a stream takes."""
