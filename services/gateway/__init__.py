"""HTTP in, images out. Knows the wire, nothing of torch, NIXL or vLLM."""
