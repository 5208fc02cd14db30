"""KV cache outside the GPU: host memory for preempted requests, and tiers that hold evicted prefix blocks."""
