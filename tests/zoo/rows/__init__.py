"""Cases of the shipped kernels over rows: softmax and layer norm."""
