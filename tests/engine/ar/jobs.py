"""Jobs and images that the AR tests share."""

import io
import itertools

import numpy as np
from PIL import Image

from services.serving.engine import PriorJob

_ids = itertools.count()


def photo(seed: int, width: int = 128, height: int = 128) -> bytes:
    """A PNG of noise, the same for the same seed."""
    pixels = np.random.RandomState(seed).randint(0, 256, (height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def job(seed: int = 1, prompt: str = "a cat 'hello'", width: int = 64, height: int = 64, image: bytes | None = None):
    return PriorJob(request_id=f"job-{next(_ids)}", prompt=prompt, width=width, height=height, seed=seed, image=image)
