"""Everything that touches vLLM-Omni: engines for one stage, the CPU platform, the tiny checkpoint."""
