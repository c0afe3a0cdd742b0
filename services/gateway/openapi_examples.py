"""Examples for the OpenAPI document."""

from typing import Any

_USAGE = {
    "input_tokens": 12,
    "output_tokens": 1281,
    "total_tokens": 1293,
    "input_tokens_details": {"text_tokens": 12, "image_tokens": 0},
    "output_tokens_details": {"text_tokens": 0, "image_tokens": 1281},
}
_FACTS = {"size": "1024x1024", "quality": "high", "background": "opaque", "output_format": "png"}

GENERATION: dict[str, dict[str, Any]] = {
    "minimal": {"prompt": "a red apple on a wooden table"},
    "everything": {
        "prompt": 'a shop window with a sign that says "OPEN"',
        "n": 2,
        "size": "1536x1024",
        "output_format": "jpeg",
        "output_compression": 85,
        "seed": 7,
        "num_inference_steps": 50,
        "guidance_scale": 1.5,
        "negative_prompt": "blurry",
    },
    "stream": {"prompt": "a red apple", "stream": True, "partial_images": 2},
}
EDIT_FORM: dict[str, dict[str, Any]] = {
    "minimal": {"image": "(the file's bytes)", "prompt": "make the apple green"},
}
IMAGES: dict[str, Any] = {
    "created": 1760000000,
    "data": [{"b64_json": "iVBORw0KGgo...", "seed": 7}],
    **_FACTS,
    "usage": _USAGE,
}
URL_IMAGES: dict[str, Any] = {
    **IMAGES,
    "data": [
        {
            "url": "http://127.0.0.1:8000/v1/files/images/68e7a810-Iu65XNHetXu1caeHYjun41O_2ge5oXiA.png",
            "seed": 7,
        }
    ],
}
STREAM = (
    "event: OPERATION.partial_image\n"
    'data: {"type":"OPERATION.partial_image","b64_json":"...","created_at":1760000000,"size":"1024x1024",'
    '"quality":"high","background":"opaque","output_format":"png","partial_image_index":0,"seed":7}\n\n'
    ": keep-alive step 31/50\n\n"
    "event: OPERATION.completed\n"
    'data: {"type":"OPERATION.completed","b64_json":"...","created_at":1760000012,"size":"1024x1024",'
    '"quality":"high","background":"opaque","output_format":"png","usage":{...},"seed":7,'
    '"times":{"queue":0.001,"ar":4.2,"handoff":0.001,"denoise":7.1,"vae":0.5,"encode":0.2}}\n\n'
)
