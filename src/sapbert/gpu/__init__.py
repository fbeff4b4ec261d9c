"""The fast path on a GPU: several names per row, CUDA graphs and Triton kernels."""
