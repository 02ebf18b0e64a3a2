"""Cases of attention and of its gradients."""
