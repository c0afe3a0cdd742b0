"""The AR prompt as token ids: the checkpoint's chat template around the user's text, then the grids to write.

The text is the user's and nothing else is. Whatever it spells, no token of the model's own (`<|image|>`, `<sop>`,
`<|dit_token_16384|>`, ...) comes out of it: such spans are tokenized as the plain characters that they are.

Sources: transformers `GlmImageProcessor` (layout), diffusers `GlmImagePipeline.generate_prior_tokens` (messages).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.omni.tiny_sizes import VISION_VOCAB
from services.wire.errors import ConfigError, InvalidRequest
from services.wire.geometry import large_grid, preview_grid

_MARK = "\N{OBJECT REPLACEMENT CHARACTER}text\N{OBJECT REPLACEMENT CHARACTER}"  # stands for the text in the template
_MAX_ROUNDS = 16
MAX_CHARACTERS = 32_000  # of a prompt; OpenAI's own limit


@dataclass(frozen=True, slots=True)
class PriorPrompt:
    """token_ids: the whole prompt, one placeholder for a condition image. text_tokens: those of the user's text."""

    token_ids: list[int]
    text_tokens: int


class PromptWriter:
    """Writes prompts for one checkpoint. One thread at a time."""

    def __init__(self, processor: Any) -> None:
        """processor: the checkpoint's `GlmImageProcessor`."""
        self.image_processor = processor.image_processor
        self._grid_start = str(processor.grid_bos_token)
        self._grid_end = str(processor.grid_eos_token)
        self._image_start = str(processor.bos_token)
        tokenizer = processor.tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self._own = frozenset(tokenizer.get_added_vocab().values()) | frozenset(tokenizer.all_special_ids)
        self._around = {edit: _template(processor, edit=edit) for edit in (False, True)}

    @classmethod
    def of(cls, checkpoint: Path) -> "PromptWriter":
        """Load the processor of the checkpoint at this directory. Raises ConfigError if it cannot be loaded."""
        from transformers.models.glm_image.processing_glm_image import GlmImageProcessor

        try:
            return cls(GlmImageProcessor.from_pretrained(checkpoint / "processor"))
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise ConfigError(f"{checkpoint}/processor cannot be loaded: {error}") from error

    def write(self, text: str, width: int, height: int, *, edit: bool) -> PriorPrompt:
        """The prompt for `text` at a canonical size in pixels.

        Raises:
            InvalidRequest: The text is longer than MAX_CHARACTERS, no valid Unicode, or cannot be told apart from the
                model's own tokens.
        """
        if len(text) > MAX_CHARACTERS:
            raise InvalidRequest(f"the prompt has more than {MAX_CHARACTERS:,} characters", param="prompt")
        before, after = self._around[edit]
        after += self._scaffold(width, height, edit=edit)
        try:
            return self._tokenize(before, text, after)
        except (UnicodeEncodeError, TypeError) as error:
            raise InvalidRequest(f"the prompt is no valid Unicode: {error}", param="prompt") from error

    def _scaffold(self, width: int, height: int, *, edit: bool) -> str:
        grids = [large_grid(width, height)] + ([] if edit else [preview_grid(width, height)])
        named = (f"{self._grid_start}{grid.rows} {grid.columns}{self._grid_end}" for grid in grids)
        return "".join(named) + self._image_start

    def _tokenize(self, before: str, text: str, after: str) -> PriorPrompt:
        whole, begin, end = before + text + after, len(before), len(before) + len(text)
        cuts: set[int] = set()
        for _ in range(_MAX_ROUNDS):
            ids, spans = self._pieces(whole, sorted(cuts))
            # A token's span may reach over blanks around it; its middle character is always its own.
            found = {
                (a + b) // 2
                for token, (a, b) in zip(ids, spans, strict=True)
                if self._is_own(token) and b > begin and a < end
            } - {begin}
            if not found:
                inside = sum(begin <= a < end or begin < b <= end for a, b in spans)
                return PriorPrompt(ids, inside)
            cuts |= found
        raise InvalidRequest("the prompt spells tokens of the model that cannot be written as text", param="prompt")

    def _pieces(self, whole: str, cuts: list[int]) -> tuple[list[int], list[tuple[int, int]]]:
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        starts = [0, *cuts]
        pieces = [whole[a:b] for a, b in zip(starts, [*cuts, len(whole)], strict=True)]
        # What the tokenizer puts before any text belongs before the first piece only.
        encodings = [self._backend.encode(pieces[0])]
        encodings += self._backend.encode_batch(pieces[1:], add_special_tokens=False)
        for start, encoding in zip(starts, encodings, strict=True):
            ids += encoding.ids
            spans += [(start + a, start + b) for a, b in encoding.offsets]
        return ids, spans

    def _is_own(self, token: int) -> bool:
        return token < VISION_VOCAB or token in self._own


def _template(processor: Any, *, edit: bool) -> tuple[str, str]:
    content = [{"type": "image"}] if edit else []
    messages = [{"role": "user", "content": [*content, {"type": "text", "text": _MARK}]}]
    before, mark, after = processor.apply_chat_template(messages, tokenize=False).partition(_MARK)
    if not mark:
        raise ConfigError("the checkpoint's chat template drops the text of a message")
    return before, after
