"""Diptych: GLM-Image as an AR service and a DiT service, joined by NIXL, behind the OpenAI Images API."""

__version__ = "0.1.0"
