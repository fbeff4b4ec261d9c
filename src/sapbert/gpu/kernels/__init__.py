"""Triton kernels. Import them only where Triton is installed."""
