"""The hand-off: named tensors from the AR stage to the DiT stage by NIXL READ, with leases, checks and bounds."""
