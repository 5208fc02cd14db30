"""A small real decoder in torch, driven by the simulator's own scheduler: the whole chain held against reality."""
