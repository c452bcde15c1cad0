"""What a recognition returns, and how its n-best lists come out of a `Recogniser`; knows no files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from espnet_latentasr.config import DecodeConfig
from espnet_latentasr.decode.beam import beam_search
from espnet_latentasr.decode.recogniser import Clips, Recogniser, Trace, token_cap, trace_of
from espnet_latentasr.decode.search import Hypothesis
from espnet_latentasr.errors import ConfigError

UNTHOUGHT = Trace([], 0, "entry", [], [], [])


@dataclass(frozen=True)
class Recognised(Hypothesis):
    """A hypothesis with what is known of it.

    trace: what the latent loop did.  language: what the recogniser was told, or wrote itself.
    metadata: model, recogniser and decoding rule that it comes from; ``other_backbone`` is True where the
    adapter was trained on another recogniser.
    """

    trace: Trace = UNTHOUGHT
    language: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """ESPnet's name of the log-probability."""
        return self.log_probability


Recognition = tuple[str, list[str], list[int], Recognised]


def greedy_lists(
    recogniser: Recogniser, clips: Clips, config: DecodeConfig, metadata: Mapping[str, Any]
) -> list[list[Recognition]]:
    """One hypothesis per clip, as the recipe decodes."""
    results = recogniser.recognise(clips, [config])[0]
    found = []
    for result, language in zip(results, clips.languages):
        spoken = language if result.language is None else result.language
        h = result.hypothesis
        known = Recognised(h.tokens, h.log_probability, h.capped, result.trace, spoken, metadata)
        found.append([(result.text, result.tokens, list(h.tokens), known)])
    return found


@torch.inference_mode()
def beam_lists(
    recogniser: Recogniser,
    clips: Clips,
    config: DecodeConfig,
    width: int,
    metadata: Mapping[str, Any],
) -> list[list[Recognition]]:
    """Beams of ``width`` from where the rule's transcript begins; one read, one loop."""
    if config.depths != "policy":
        raise ConfigError(
            "nbest: a beam continues from one depth; halting: surest and depths: all compare several"
        )
    method = recogniser.method
    adapted = method is not None and (method.thinks or config.halting.kind != "never")
    prompt = recogniser.prompt_of(config)
    read = recogniser.read(recogniser.encode(clips), clips.languages, adapted, 0.0, prompt)
    state, thoughts = read.state, None
    if adapted and method.thinks:
        keys = [str(row) for row in range(len(clips))]
        stages, thoughts = recogniser.think(read, config, keys, None)
        state = stages[-1]
    reader = method.adapted if adapted else recogniser.backbone
    caps = [token_cap(len(clip), config) for clip in clips.audio]
    text, found = recogniser.backbone.text, []
    for row, group in enumerate(beam_search(reader, state, caps, width, max(64, width))):
        trace = UNTHOUGHT if thoughts is None else trace_of(thoughts, row)
        spoken = clips.languages[row] if read.lines is None else read.lines[row]
        found.append(
            [
                (
                    text.detokenize(h.tokens),
                    text.tokens(h.tokens),
                    list(h.tokens),
                    Recognised(h.tokens, h.log_probability, h.capped, trace, spoken, metadata),
                )
                for h in group
            ]
        )
    return found
