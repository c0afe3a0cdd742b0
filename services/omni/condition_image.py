"""The condition image of an edit, at a size on which the AR stage and the DiT agree.

The AR model looks at the image through `GlmImageImageProcessor`, whose `smart_resize` picks a size by its own bounds;
diffusers and vLLM-Omni encode the pixels for the DiT at the image's own size. The two grids are equal only when the
image already has the size that `smart_resize` would pick, so it is brought there first, once, for both.
"""

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.wire.errors import InvalidRequest

if TYPE_CHECKING:
    import torch
    from PIL import Image

MAX_PIXELS = 64_000_000  # 192 MB as RGB; checked in the header, before anything is decoded
FORMATS = ("PNG", "JPEG", "WEBP")


@dataclass(frozen=True, slots=True)
class ConditionImage:
    """An RGB image with sides that are multiples of 32. ar_tokens: placeholders it takes in the AR prompt."""

    image: "Image.Image"
    ar_tokens: int

    @property
    def codes(self) -> int:
        """How many codes the DiT wants for it: one for each 16 x 16 pixels."""
        return 4 * self.ar_tokens

    def pixels(self) -> "torch.Tensor":
        """uint8 [height, width, 3], RGB."""
        import numpy as np
        import torch

        return torch.from_numpy(np.array(self.image, dtype=np.uint8))


def read_condition_image(encoded: bytes, image_processor: Any) -> ConditionImage:
    """Decode and resize; `image_processor` is the checkpoint's GlmImageImageProcessor.

    Raises:
        InvalidRequest: No PNG, JPEG or WebP, too many pixels, too small, or longer than four times its width.
    """
    from PIL import Image
    from transformers.models.glm_image.image_processing_glm_image import smart_resize

    image = _decode(encoded)
    patch = image_processor.patch_size * image_processor.merge_size
    try:
        rows, columns = smart_resize(
            image.height,
            image.width,
            factor=patch,
            min_pixels=image_processor.size["shortest_edge"],
            max_pixels=image_processor.size["longest_edge"],
        )
    except ValueError as error:
        raise InvalidRequest(f"the condition image is unusable: {error}", param="image") from error
    # smart_resize answers in AR pixels, half a side of the DiT's.
    size = (2 * columns, 2 * rows)
    if image.size != size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    return ConditionImage(image, (rows // patch) * (columns // patch))


def _decode(encoded: bytes) -> "Image.Image":
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(encoded), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise InvalidRequest(f"the condition image has more than {MAX_PIXELS:,} pixels", param="image")
            return image.convert("RGB")
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        raise InvalidRequest("the condition image is no readable PNG, JPEG or WebP", param="image") from error
