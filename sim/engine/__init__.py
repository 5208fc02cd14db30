"""One serving replica: state, policy and the SimPy process that joins them."""
