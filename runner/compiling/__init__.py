"""Kernels compiled without a device: registers, spills, shared memory."""
