"""ESPnet's ``Speech2Text`` call for LatentASR: audio in, n-best lists of tuples out.

    asr = Speech2Text.from_pretrained("shared_adapter.zip")
    text, tokens, token_ids, hypothesis = asr("speech.wav")[0]

What a call returns is what the recipe decodes: the same reading, loop and search, by the same code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from espnet_latentasr.config import DecodeConfig, HaltingConfig, build, load_yaml
from espnet_latentasr.data.audio import SAMPLE_RATE, check_audio, read_audio, resample
from espnet_latentasr.decode.batching import batches_by_length, check_lengths
from espnet_latentasr.decode.loading import Loaded, load_recogniser
from espnet_latentasr.decode.pack_format import ADAPTER, Pack, read_folder
from espnet_latentasr.decode.pretrained import check_device, find_pack, load_pack
from espnet_latentasr.decode.recogniser import Clips
from espnet_latentasr.decode.recognition import Recognition, beam_lists, greedy_lists
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.text.languages import get_language

PEAK = 2.0  # resampling overshoots full scale a little; integers that were made floats, a lot
Speech = np.ndarray | torch.Tensor | str | Path


class Speech2Text:
    """A recogniser with an adapter, ready to transcribe.

    Without ``backbone_dir``, ``asr_train_config`` and ``asr_model_file`` are the two files of a shared
    adapter (``Speech2Text(**unpacked)`` of what ESPnet's model zoo unpacked).
    """

    def __init__(
        self,
        backbone_dir: str | Path | None = None,
        asr_train_config: str | Path | None = None,
        asr_model_file: str | Path | None = None,
        inference_config: str | Path | None = None,
        device: str = "cpu",
        language: str | None = None,
        backbone: str | Path | None = None,
        allow_other_backbone: bool = False,
    ) -> None:
        if backbone_dir is None:
            pack = _pack_of(asr_train_config, asr_model_file)
            self._from_pack(pack, inference_config, device, language, backbone, allow_other_backbone)
            return
        if backbone is not None or allow_other_backbone:
            raise ConfigError("backbone, allow_other_backbone: for shared adapters, not for experiments")
        device = check_device(device, "float32")
        loaded = load_recogniser(backbone_dir, asr_train_config, asr_model_file, device)
        metadata = {"model": loaded.model_hash, "backbone": loaded.backbone_fingerprint}
        metadata |= {"trained_on": loaded.backbone_fingerprint, "other_backbone": False}
        config = None
        if inference_config is not None:
            config = build(DecodeConfig, load_yaml(inference_config), str(inference_config))
        self._set_up(loaded, config, language or "en", metadata)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        revision: str | None = None,
        *,
        backbone: str | Path | None = None,
        allow_other_backbone: bool = False,
        inference_config: str | Path | None = None,
        device: str = "cpu",
        language: str | None = None,
    ) -> Speech2Text:
        """Load a shared adapter (``bin.pack``) and the recogniser it was trained on.

        Args:
            name: its folder, its zip, or a hub id, which needs ``revision``: a commit hash.
            backbone: where the frozen recogniser is, if not on the hub: a model's folder, a folder of
                stage 5, or ``id@commit``.
            allow_other_backbone: take another recogniser than the one trained on; it is logged, and
                every result's ``metadata`` says so.
            inference_config: a decoding YAML instead of the packed rule.
            device: ``cpu``, ``cuda``, ``cuda:1``, or ``auto``.
            language: assumed where a call names none; None: the packed one.

        Raises:
            ConfigError: nothing of that name, another recogniser, no GPU, ...
            DataError: a damaged pack.
        """
        made = cls.__new__(cls)
        pack = find_pack(name, revision)
        made._from_pack(pack, inference_config, device, language, backbone, allow_other_backbone)
        return made

    def _from_pack(
        self,
        pack: Pack,
        inference_config: str | Path | None,
        device: str,
        language: str | None,
        backbone: str | Path | None,
        allow_other_backbone: bool,
    ) -> None:
        config = pack.decode
        if inference_config is not None:
            config = build(DecodeConfig, load_yaml(inference_config), str(inference_config))
        found = load_pack(pack, backbone, device, allow_other_backbone)
        self._set_up(found.loaded, config, language or pack.language, dict(found.metadata))

    def _set_up(
        self, loaded: Loaded, config: DecodeConfig | None, language: str | None, metadata: dict[str, Any]
    ) -> None:
        self.loaded, self.recogniser, self.metadata = loaded, loaded.recogniser, metadata
        self.language = None if language is None else get_language(language).code
        method = self.recogniser.method
        if config is None:
            kind = "never" if method is None else "threshold" if method.thinks else "always"
            config = build(DecodeConfig, {"halting": {"kind": kind}})
        self.config = self.rule(base=config)

    def rule(
        self,
        theta: float | None = None,
        steps: int | None = None,
        halting: str | HaltingConfig | None = None,
        base: DecodeConfig | None = None,
    ) -> DecodeConfig:
        """A decoding rule: ``base`` (the default: this object's own), changed in how it halts.

        Args:
            theta: think on while v_k >= theta.
            steps: so many latent steps for everyone; 0 is the frozen recogniser.
            halting: ``never``, ``always``, ``surest``, or a whole ``HaltingConfig``.

        Raises:
            ConfigError: more than one of the three, more steps than trained, or a rule that this model
                has no meaning for.
        """
        config = self.config if base is None else base
        if sum(choice is not None for choice in (theta, steps, halting)) > 1:
            raise ConfigError("theta, steps, halting: three ways to say when to stop; give one of them")
        if theta is not None:
            halting = HaltingConfig("threshold", theta=float(theta))
        elif steps is not None:
            halting = HaltingConfig("never") if steps == 0 else HaltingConfig("fixed", steps=steps)
        elif isinstance(halting, str):
            halting = build(HaltingConfig, {"kind": halting}, "halting")
        if halting is not None:
            # Only `surest` needs every depth; any other rule halts where it stops.
            depths = "all" if halting.kind == "surest" else "policy"
            config = dataclasses.replace(config, halting=halting, depths=depths)
        self.recogniser.check(config)
        if config.latents == "swapped":
            raise ConfigError("latents: swapped needs a set of utterances; decode a data directory")
        if config.halting.kind == "fixed":
            trained = self.recogniser.method.config.latent.steps
            if config.halting.steps > trained:
                raise ConfigError(f"steps: {config.halting.steps}, but this adapter has N = {trained}")
        return config

    def __call__(
        self,
        speech: Speech | Sequence[Speech],
        rate: int = SAMPLE_RATE,
        *,
        language: str | Sequence[str] | None = None,
        theta: float | None = None,
        steps: int | None = None,
        halting: str | HaltingConfig | None = None,
        nbest: int = 1,
    ) -> list[Recognition] | list[list[Recognition]]:
        """Transcribe one clip, or a list of clips.

        Args:
            speech: float samples (S,) in [-1, 1], mono; or a file's name; or a list of such.
            rate: of the arrays, in Hz; files know their own.  Other rates than 16 kHz are resampled.
            language: code or English name, one for all or one per clip; None: the default.
            theta, steps, halting: see `rule`.
            nbest: 1 is greedy search, as the recipe decodes; more is a beam of that width.

        Returns:
            For a clip ESPnet's n-best list, best first: (text, tokens, token ids, hypothesis), the last
            one a `Recognised`; for a list of clips one such list each, in its order.

        Raises:
            DataError: unusable audio, naming clip and reason; an unknown language.
            ConfigError: a decoding rule that has no meaning here.
        """
        config = self.rule(theta, steps, halting)
        many = isinstance(speech, (list, tuple))
        given = list(speech) if many else [speech]
        clips = [self.load(entry, rate, f"clip {n}") for n, entry in enumerate(given, start=1)]
        found = self.recognise(clips, self.languages(language, len(clips)), config, nbest)
        return found if many else found[0]

    def languages(self, language: str | Sequence[str] | None, count: int) -> list[str]:
        """One language per clip.

        Raises:
            ConfigError: none is known; another number than there are clips.
        """
        if language is None and self.language is None:
            raise ConfigError(
                "language: this adapter says none, and the prompt names it: give language='en', or "
                "another code"
            )
        if language is None or isinstance(language, str):
            return [language or self.language] * count
        if len(language) != count:
            raise ConfigError(f"language: {len(language)} given for {count} clips")
        return list(language)

    def load(self, speech: Speech, rate: int = SAMPLE_RATE, name: str = "clip") -> np.ndarray:
        """One clip as float32 (S,) at 16 kHz, checked; ``name`` is for messages.

        Raises:
            DataError: unusable audio.
        """
        if isinstance(speech, (str, Path)):
            clip = read_audio(speech, Path(speech).name)
            check_lengths({str(speech): clip}, self.recogniser.backbone.max_samples)
            return clip
        if isinstance(speech, torch.Tensor):
            speech = speech.detach().cpu().numpy()
        if not isinstance(speech, np.ndarray):
            kind = type(speech).__name__
            raise DataError(f"{name}: samples (S,) or a file's name expected, got {kind}")
        if speech.ndim != 1:
            raise DataError(f"{name}: expected one mono clip (S,), got an array of shape {speech.shape}")
        if not np.issubdtype(speech.dtype, np.floating):
            raise DataError(
                f"{name}: samples of type {speech.dtype}; floats in [-1, 1] expected (int16 / 32768)"
            )
        if rate <= 0:
            raise DataError(f"{name}: rate {rate} Hz; the samples' rate expected")
        clip = np.asarray(speech, dtype=np.float32)
        if reason := check_audio(clip, rate, float("inf"), 0.0):
            raise DataError(f"{name}: {reason}: {len(clip)} samples at {rate} Hz; nothing to recognise")
        if (peak := float(np.abs(clip).max())) > PEAK:
            raise DataError(f"{name}: a sample of {peak:g}; floats in [-1, 1] expected (int16 / 32768)")
        clip = resample(clip, int(rate), SAMPLE_RATE)
        check_lengths({name: clip}, self.recogniser.backbone.max_samples)
        return clip

    def recognise(
        self, clips: Sequence[np.ndarray], languages: Sequence[str], config: DecodeConfig, nbest: int = 1
    ) -> list[list[Recognition]]:
        """N-best lists of loaded clips, in their order; clips of similar length share a batch."""
        if nbest < 1:
            raise ConfigError(f"nbest: {nbest}, at least 1 expected")
        found: dict[str, list[Recognition]] = {}
        named = {str(index): clip for index, clip in enumerate(clips)}
        rule = dataclasses.asdict(config.halting) | {"on_halt": config.on_halt, "latents": config.latents}
        metadata = self.metadata | {"rule": rule, "nbest": nbest}
        for batch in batches_by_length(named, config.batch_size):
            part = Clips([named[i] for i in batch], [languages[int(i)] for i in batch])
            if nbest == 1:
                found |= zip(batch, greedy_lists(self.recogniser, part, config, metadata))
            else:
                found |= zip(batch, beam_lists(self.recogniser, part, config, nbest, metadata))
        return [found[name] for name in named]


def _pack_of(config: str | Path | None, model_file: str | Path | None) -> Pack:
    """The pack whose two files these are."""
    if config is None or model_file is None:
        raise ConfigError(
            "backbone_dir: needed for an experiment; asr_train_config and asr_model_file alone are the "
            "files of a shared adapter (or use Speech2Text.from_pretrained)"
        )
    if Path(model_file).name != ADAPTER or Path(model_file).parent != Path(config).parent:
        raise ConfigError(
            f"{model_file}: not the {ADAPTER} beside {config}; an experiment of the recipe needs its "
            "backbone_dir"
        )
    return read_folder(Path(config).parent)
