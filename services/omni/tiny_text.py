"""The tokenizer and processor of a random GLM-Image checkpoint: bytes and special tokens, no merges.

Vision ids are the real ones (codes 0..16383, 16384 starts an image, 16385 ends it). The text ids and the spelling
of the special tokens are ours; only their roles are the model's.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast
from transformers.models.glm_image.image_processing_glm_image import GlmImageImageProcessor
from transformers.models.glm_image.processing_glm_image import GlmImageProcessor

from services.omni.tiny_sizes import IMAGE_END, IMAGE_START, VISION_VOCAB

START, END = f"<|dit_token_{IMAGE_START}|>", f"<|dit_token_{IMAGE_END}|>"
PAD, IMAGE, GRID_START, GRID_END = "<|endoftext|>", "<|image|>", "<sop>", "<eop>"
SPECIALS = (PAD, IMAGE, GRID_START, GRID_END, "<|user|>", "<|assistant|>", "<|system|>")

# A condition image is start + image + end, then the text: the layout that transformers' get_rope_index expects.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.content is string -%}{{ message.content }}{%- else -%}"
    "{%- for part in message.content -%}"
    "{%- if part.type == 'image' -%}" + START + IMAGE + END + "{%- elif part.type == 'text' -%}{{ part.text }}"
    "{%- endif -%}{%- endfor -%}{%- endif -%}{%- endfor -%}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, after the vision ids; no merges, so a text of n bytes is n tokens."""
    vocab = {f"<|dit_token_{i}|>": i for i in range(VISION_VOCAB)}
    for token in (*sorted(pre_tokenizers.ByteLevel.alphabet()), *SPECIALS):
        vocab[token] = len(vocab)
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in (START, END, *SPECIALS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START,
        eos_token=END,
        pad_token=PAD,
        padding_side="left",
        model_max_length=131072,
        extra_special_tokens={"image_token": IMAGE, "grid_bos_token": GRID_START, "grid_eos_token": GRID_END},
        clean_up_tokenization_spaces=False,
    )


def write_text_parts(directory: Path) -> PreTrainedTokenizerFast:
    """Write `processor/` (AR) and `tokenizer/` (glyph encoder); returns the AR tokenizer."""
    tokenizer = byte_tokenizer()
    images = GlmImageImageProcessor(
        patch_size=16, temporal_patch_size=1, merge_size=1, size={"shortest_edge": 64 * 64, "longest_edge": 2048 * 2048}
    )
    processor = GlmImageProcessor(image_processor=images, tokenizer=tokenizer, chat_template=CHAT_TEMPLATE)
    processor.save_pretrained(directory / "processor")
    # vLLM asks this folder for a config; without one it logs an error and sleeps 2 s, several times over.
    (directory / "processor" / "config.json").write_text(json.dumps({"model_type": "glm_image"}))
    ByT5Tokenizer().save_pretrained(directory / "tokenizer")
    return tokenizer
