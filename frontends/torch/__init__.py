"""PyTorch models in: modules, exported programs and fx graphs become graphs."""
