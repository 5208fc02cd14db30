"""What is served: architectures, quantisation and the memory budget."""
