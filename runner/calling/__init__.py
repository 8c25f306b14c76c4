"""A pipeline as a Python function: eager, under autograd, under torch.compile, as a drop-in."""
