"""The networks of a random GLM-Image checkpoint, drawn from torch's global generator (the caller seeds it)."""

import json
from pathlib import Path

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler
from diffusers.models import GlmImageTransformer2DModel
from transformers import (
    GlmImageConfig,
    GlmImageForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
)

from services.omni.tiny_sizes import IMAGE_END, IMAGE_START, NUM_CODES, VISION_VOCAB, TinySize
from services.omni.tiny_text import GRID_END, GRID_START, IMAGE

COMPONENTS = {
    "processor": ["transformers", "GlmImageProcessor"],
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "ByT5Tokenizer"],
    "transformer": ["diffusers", "GlmImageTransformer2DModel"],
    "vae": ["diffusers", "AutoencoderKL"],
    "vision_language_encoder": ["transformers", "GlmImageForConditionalGeneration"],
}


def write_networks(directory: Path, tokenizer: PreTrainedTokenizerFast, size: TinySize, dtype: torch.dtype) -> None:
    """Write every network, the scheduler and `model_index.json`."""
    _write_ar(directory / "vision_language_encoder", tokenizer, size, dtype)
    _write_glyph_encoder(directory / "text_encoder", size, dtype)
    _write_vae(directory / "vae", size, dtype)
    _write_dit(directory / "transformer", size, dtype)
    _write_scheduler(directory / "scheduler")
    index = {"_class_name": "GlmImagePipeline", "_diffusers_version": "0.40.0", **COMPONENTS}
    (directory / "model_index.json").write_text(json.dumps(index, indent=2))


def _ar_config(tokenizer: PreTrainedTokenizerFast, size: TinySize) -> GlmImageConfig:
    text = {
        "vocab_size": -(-len(tokenizer) // 64) * 64,
        "hidden_size": size.ar_hidden,
        "intermediate_size": size.ar_ffn,
        "num_hidden_layers": size.ar_layers,
        "num_attention_heads": size.ar_heads,
        "num_key_value_heads": size.ar_kv_heads,
        "head_dim": size.ar_head_dim,
        "max_position_embeddings": 131072,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": IMAGE_END,
        "vision_vocab_size": VISION_VOCAB,
        "attention_bias": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 1.0,
            "mrope_section": size.rotary_sections(),
        },
    }
    vision = {
        "depth": size.vision_layers,
        "hidden_size": size.vision_hidden,
        "num_heads": size.vision_heads,
        "intermediate_size": size.vision_ffn,
        "image_size": 512,
        "patch_size": 16,
        "spatial_merge_size": 1,
    }
    codes = {"embed_dim": size.codebook_dim, "num_embeddings": NUM_CODES, "latent_channels": size.vision_hidden}
    special = tokenizer.convert_tokens_to_ids
    return GlmImageConfig(
        text_config=text,
        vision_config=vision,
        vq_config=codes,
        image_token_id=special(IMAGE),
        image_start_token_id=IMAGE_START,
        image_end_token_id=IMAGE_END,
        grid_bos_token_id=special(GRID_START),
        grid_eos_token_id=special(GRID_END),
    )


def _write_ar(path: Path, tokenizer: PreTrainedTokenizerFast, size: TinySize, dtype: torch.dtype) -> None:
    model = GlmImageForConditionalGeneration(_ar_config(tokenizer, size))
    with torch.no_grad():
        # Wide rows, so that decoding is not degenerate. The rows above the codes stay zero: their logit is
        # always 0, far below the maximum, and no id that is not a code is ever sampled.
        model.lm_head.weight.normal_(0, 0.5)
        model.lm_head.weight[NUM_CODES:] = 0
    model.generation_config.eos_token_id = IMAGE_END
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.do_sample = True
    model.to(dtype).save_pretrained(path)


def _write_glyph_encoder(path: Path, size: TinySize, dtype: torch.dtype) -> None:
    config = T5Config(
        vocab_size=384,
        d_model=size.glyph_hidden,
        d_kv=16,
        d_ff=2 * size.glyph_hidden,
        num_layers=size.glyph_layers,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        is_encoder_decoder=False,
        use_cache=False,
        tie_word_embeddings=False,
    )
    T5EncoderModel(config).to(dtype).save_pretrained(path)


def _write_vae(path: Path, size: TinySize, dtype: torch.dtype) -> None:
    vae = AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=size.vae_channels,
        layers_per_block=1,
        latent_channels=16,
        norm_num_groups=8,
        sample_size=64,
        scaling_factor=1.0,
        shift_factor=0.0,
        latents_mean=[0.0] * 16,
        latents_std=[1.0] * 16,
        use_quant_conv=False,
        use_post_quant_conv=False,
        mid_block_add_attention=False,
    )
    vae.to(dtype).save_pretrained(path)


def _write_dit(path: Path, size: TinySize, dtype: torch.dtype) -> None:
    dit = GlmImageTransformer2DModel(
        patch_size=2,
        in_channels=16,
        out_channels=16,
        num_layers=size.dit_layers,
        attention_head_dim=size.dit_head_dim,
        num_attention_heads=size.dit_heads,
        text_embed_dim=size.glyph_hidden,
        time_embed_dim=size.dit_time_dim,
        condition_dim=32,
        prior_vq_quantizer_codebook_size=NUM_CODES,
    )
    dit.to(dtype).save_pretrained(path)


def _write_scheduler(path: Path) -> None:
    FlowMatchEulerDiscreteScheduler(
        num_train_timesteps=1000,
        use_dynamic_shifting=True,
        base_shift=0.25,
        max_shift=0.75,
        base_image_seq_len=256,
        max_image_seq_len=4096,
        time_shift_type="linear",
    ).save_pretrained(path)
