"""The model card of a shared adapter: Markdown and the keys the hub reads; measures nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from espnet_latentasr.config import DecodeConfig
from espnet_latentasr.decode.pack_format import Pack

TAGS = ("espnet", "audio", "automatic-speech-recognition", "latent-test-time-scaling")
KINDS = {
    "latent": "latent adapter and value head",
    "lora": "low-rank maps beside the text decoder's linear ones",
    "prompt": "trained vectors after the prompt",
    "full": "fine-tuned weights of the whole text decoder",
}


@dataclass(frozen=True)
class Facts:
    """What the card says and no file of the experiment knows.

    results: Markdown of the scored decodings, None: not measured.  license: as the hub names it.
    datasets: hub ids, or words.
    """

    name: str | None = None
    license: str | None = None
    datasets: tuple[str, ...] = ()
    results: str | None = None


def _head(pack: Pack, facts: Facts) -> str:
    keys: dict[str, Any] = {}
    if pack.language is not None:
        keys["language"] = pack.language
    if facts.license is not None:
        keys["license"] = facts.license
    keys |= {"library_name": "espnet", "pipeline_tag": "automatic-speech-recognition", "tags": list(TAGS)}
    if not pack.recogniser.local:
        keys |= {"base_model": pack.recogniser.name, "base_model_relation": "adapter"}
    if ids := [name for name in facts.datasets if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name)]:
        keys["datasets"] = ids
    if facts.results is not None:
        units = ("wer", "cer", "mer")
        keys["metrics"] = [unit for unit in units if f"{unit.upper()} in %" in facts.results]
    return yaml.safe_dump(keys, sort_keys=False, allow_unicode=True)


def rule_in_words(config: DecodeConfig | None) -> str:
    """A decoding rule as a reader of the card needs it."""
    if config is None:
        return "the default: value threshold 0 for a latent adapter, the adapted recogniser otherwise"
    halting = config.halting
    return {
        "never": "the frozen recogniser; the adapter is not used",
        "always": "all latent steps, or the adapted recogniser as it is",
        "fixed": f"{halting.steps} latent steps for every utterance",
        "threshold": f"value threshold {halting.theta:g}: think on while v_k is at least that",
        "surest": "every depth is decoded, the text of the highest mean log-probability is taken",
    }[halting.kind]


def _usage(pack: Pack) -> str:
    where = ', backbone="FOLDER"' if pack.recogniser.local else ""
    return (
        "```python\nfrom espnet_latentasr import Speech2Text\n\n"
        f'asr = Speech2Text.from_pretrained("THIS_FOLDER_OR_ZIP"{where})\n'
        'text, tokens, token_ids, hypothesis = asr("speech.wav")[0]\n```\n\n'
        "From a hub, `from_pretrained` takes the repository's id and, as `revision`, its commit. "
        "`asr(samples, rate)` takes arrays, lists and file names; `theta`, `steps`, `halting` and "
        "`nbest` change how it decodes."
    )


def _base(pack: Pack) -> str:
    base = pack.recogniser
    if base.local:
        place = f"A local folder called `{base.name}`, which is on no hub: ask its owner for it"
    else:
        place = f"`{base.name}` at commit `{base.revision}`"
    return (
        f"{place}. Kind `{base.kind}`, {base.parameters:,} frozen parameters, {base.dtype}, fingerprint "
        f"`{base.fingerprint}`. It is **not** in this pack, and another one is refused unless "
        "`allow_other_backbone=True` is given; its own licence applies to it."
    )


def card_text(pack: Pack, facts: Facts) -> str:
    """Content of ``README.md``.

    Says what was not measured or not named, rather than leave it out.
    """
    adaptation = pack.method.adaptation
    latent = pack.method.latent
    loop = f" Loop `{latent.loop}`, N = {latent.steps}." if adaptation == "latent" else ""
    results = facts.results
    if results is None:
        results = "Not measured: no scored decodings were given when this was packed."
    limits = [
        "Trained and measured on the sets above only; of other speech, languages, noise and recording "
        "conditions nothing is known.",
        "Fits the one recogniser it was trained on, bit for bit; on any other its effect is unknown.",
        "It cannot hear more than the recogniser hears: it is a way to decode, and an average gain says "
        "nothing about a single utterance.",
    ]
    if adaptation == "latent":
        limits.append("The value head predicts whether thinking helps; it does not know.")
    if adaptation == "full":
        limits.append(
            "These are the recogniser's own weights, trained on: its licence applies to them too, and "
            "they are as large as its decoder."
        )
    versions = ", ".join(f"{name} {found}" for name, found in pack.versions.items())
    unnamed = "Not named by whoever packed this: ask."
    license_ = unnamed if facts.license is None else f"`{facts.license}`."
    data = ", ".join(facts.datasets) if facts.datasets else unnamed
    parts = [
        f"---\n{_head(pack, facts)}---",
        f"# {facts.name or 'Adapter for ' + pack.recogniser.name}",
        f"Made with espnet_latentasr: {KINDS.get(adaptation, adaptation)} for a frozen speech "
        f"recogniser, {pack.parameters:,} trained parameters.{loop} Identity `{pack.model}`.",
        "## Use",
        _usage(pack),
        f"Decoding rule: {rule_in_words(pack.decode)}.",
        "## Recogniser",
        _base(pack),
        "## Results",
        results.strip(),
        "## Training data",
        data,
        "## Limits",
        "\n".join(f"- {limit}" for limit in limits),
        "## Licence of the adapter",
        license_,
        "## Files",
        "`config.json` names recogniser, method and decoding rule; `adapter.safetensors` holds tensors "
        "only and no code; `meta.yaml` lists both for ESPnet's model zoo (`Speech2Text(**unpacked)` of "
        "espnet_latentasr takes what it returns; ESPnet's own `asr_inference` does not read this).",
        f"Packed with {versions}.",
    ]
    return "\n\n".join(parts) + "\n"
