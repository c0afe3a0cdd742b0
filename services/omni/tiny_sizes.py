"""How large a random GLM-Image checkpoint is. Defaults: 17 MB, runs on two CPU cores, divides by TP=2.

The real model's sizes: AR 40 layers, hidden 4096, 32 query and 2 key-value heads; DiT 30 layers, 32 heads of 128.
"""

from dataclasses import dataclass

IMAGE_START, IMAGE_END, NUM_CODES, VISION_VOCAB = 16384, 16385, 16384, 16512  # ids, ids, codes, rows of the lm head


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySize:
    """Sizes of the AR model, its vision tower, the DiT, the glyph encoder and the VAE."""

    ar_layers: int = 2
    ar_heads: int = 4
    ar_kv_heads: int = 2
    ar_head_dim: int = 32
    ar_hidden: int = 128
    ar_ffn: int = 256
    vision_layers: int = 1
    vision_hidden: int = 64
    vision_heads: int = 2
    vision_ffn: int = 128
    codebook_dim: int = 32
    dit_layers: int = 2
    dit_heads: int = 4
    dit_head_dim: int = 32
    dit_time_dim: int = 64
    glyph_layers: int = 2
    glyph_hidden: int = 64
    vae_channels: tuple[int, int, int, int] = (16, 16, 32, 32)

    def rotary_sections(self) -> list[int]:
        """Rotary frequencies of the three position axes, in the real model's 2:3:3 split."""
        half = self.ar_head_dim // 2
        time = half // 4
        row = (half - time) // 2
        return [time, row, half - time - row]
