"""PyTorch's doors: the backend of torch.compile, programs of modules, generation."""
