"""The sets of the mini task: which sentence, which voice, which set; writes Kaldi directories.

    backbone_train   8,000 synthetic + 2/3 of the recorded prompts   trains the frozen recogniser
    activation_pool  2,000 synthetic    never heard by the recogniser; the adapter trains on a sample
    valid              300 synthetic    new sentences, known voices: checkpoint and threshold choice
    test_text          500 synthetic    new sentences, known voices
    test_voice         500 synthetic    new sentences, new voices and a new accent
    test_human         1/3 of the recorded prompts (new texts, a voice known from training)
    valid_large      1,000 synthetic    as valid; made on request, for studies
    test_large       2,400 synthetic    new sentences, half of them in new voices; on request
    test_confirm     4,800 synthetic    as test_large: for what was noticed there; on request

"New" means that the sentence occurs in no training set.  Everything follows from one seed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.data.mini import asterisk, espeak, grammar
from espnet_latentasr.fileio import atomic_path, atomic_write_text

KNOWN_ACCENTS = ("en-us", "en", "en-gb-x-rp", "en-gb-scotland", "en-gb-x-gbclan")
NEW_ACCENTS = ("en-us", "en", "en-gb-x-rp", "en-029", "en-us-nyc")
KNOWN_VARIANTS = (
    "m1 m2 m3 m4 m5 m6 f1 f2 f3 f4 Andy Gene Jacky Alex Annie "
    "adam linda belinda steph Michael david max travis shelby"
).split()
NEW_VARIANTS = tuple("m7 m8 f5 Lee Mario Denis anika Diogo ed zac".split())
MAX_PROMPT_SECONDS = 10.0
LANGUAGE = "en"


@dataclass(frozen=True)
class SetPlan:
    """One synthetic set: its size and where its voices come from.

    With ``other_accents``, ``other_variants``: every second utterance takes its voice from those.
    """

    name: str
    size: int
    accents: tuple[str, ...]
    variants: tuple[str, ...]
    distinct: bool
    other_accents: tuple[str, ...] = ()
    other_variants: tuple[str, ...] = ()


PLANS = (
    SetPlan("backbone_train", 8000, KNOWN_ACCENTS, tuple(KNOWN_VARIANTS), False),
    SetPlan("activation_pool", 2000, KNOWN_ACCENTS, tuple(KNOWN_VARIANTS), False),
    SetPlan("valid", 300, KNOWN_ACCENTS, tuple(KNOWN_VARIANTS), True),
    SetPlan("test_text", 500, KNOWN_ACCENTS, tuple(KNOWN_VARIANTS), True),
    SetPlan("test_voice", 500, NEW_ACCENTS, NEW_VARIANTS, True),
    SetPlan("valid_large", 1000, KNOWN_ACCENTS, tuple(KNOWN_VARIANTS), True),
    SetPlan("test_large", 2400, KNOWN_ACCENTS, tuple(KNOWN_VARIANTS), True, NEW_ACCENTS, NEW_VARIANTS),
    SetPlan(
        "test_confirm", 4800, KNOWN_ACCENTS, tuple(KNOWN_VARIANTS), True, NEW_ACCENTS, NEW_VARIANTS
    ),
)
ON_REQUEST = ("backbone_train", "valid_large", "test_large", "test_confirm")
HUMAN_TEST, HUMAN_TRAIN = "test_human", "backbone_train"


def plan_utterances(
    scale: float = 1.0,
    seed: int = 1,
    prompts_test: Collection[str] = (),
) -> dict[str, list[espeak.Utterance]]:
    """Decide every synthetic utterance of every set.

    Training sets are drawn first; sentences of valid and test sets are new with respect to all sets
    drawn before them.

    Args:
        scale: multiplies every set's size (at least 4 utterances); for tests.
        prompts_test: texts that no synthetic set may contain.
    """
    seen: set[str] = set(prompts_test)
    sets: dict[str, list[espeak.Utterance]] = {}
    for position, plan in enumerate(PLANS):
        rng = random.Random(f"mini-voices-{seed}-{plan.name}")
        size = max(4, round(plan.size * scale))
        texts = grammar.sentences(
            size,
            seed * 100 + position,
            exclude=seen if plan.distinct else prompts_test,
            distinct=plan.distinct,
        )
        seen.update(texts)
        sets[plan.name] = [
            _cast(index, text, plan, rng) for index, text in enumerate(texts)
        ]
    return sets


def _cast(index: int, text: str, plan: SetPlan, rng: random.Random) -> espeak.Utterance:
    other = bool(plan.other_variants) and index % 2 == 1
    accents = plan.other_accents if other else plan.accents
    variants = plan.other_variants if other else plan.variants
    voice = f"{rng.choice(accents)}+{rng.choice(variants)}"
    speaker = voice.replace("+", "_")
    return espeak.Utterance(
        f"{speaker}-{plan.name}-{index:05d}", text, voice, rng.randint(130, 230), rng.randint(25, 75)
    )


def split_prompts(texts: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split prompts 2:1 into (train, test) by a hash of the text, so that no text is in both."""

    def is_test(text: str) -> bool:
        return hashlib.sha256(text.encode()).digest()[0] % 3 == 0

    train = {name: text for name, text in texts.items() if not is_test(text)}
    return train, {name: text for name, text in texts.items() if is_test(text)}


def _write_set(
    folder: Path, audio: Iterable[tuple[str, np.ndarray]], text: dict[str, str], spk: dict[str, str]
) -> None:
    """Write wavs, then the tables; ``text`` is written last and marks the set complete."""
    wav_dir = folder / "wavs"
    wav_dir.mkdir(parents=True, exist_ok=True)
    wav_scp: dict[str, str] = {}
    for utt_id, samples in audio:
        path = wav_dir / f"{utt_id}.wav"
        with atomic_path(path) as temporary:
            soundfile.write(temporary, samples, espeak.SAMPLE_RATE, "PCM_16", format="WAV")
        wav_scp[utt_id] = str(path)
    speakers: dict[str, list[str]] = {}
    for utt_id in sorted(spk, key=str.encode):
        speakers.setdefault(spk[utt_id], []).append(utt_id)
    write_kaldi_table(folder / "wav.scp", wav_scp)
    write_kaldi_table(folder / "utt2spk", spk)
    write_kaldi_table(folder / "spk2utt", {s: " ".join(u) for s, u in speakers.items()})
    write_kaldi_table(folder / "utt2lang", dict.fromkeys(spk, LANGUAGE))
    write_kaldi_table(folder / "text", text)


def prepare_mini(
    output: Path,
    downloads: Path,
    *,
    on_request: Collection[str] = (),
    nj: int = 2,
    scale: float = 1.0,
    seed: int = 1,
) -> list[str]:
    """Build the mini corpus below ``output``; returns the names of the sets that are there.

    A set whose ``text`` exists and whose recorded plan is the same is left as it is.

    Args:
        downloads: where the Asterisk packages are kept.
        on_request: names of further sets to make (backbone_train: 2 minutes more); names of sets
            that are made anyway are allowed.
    """
    root = asterisk.fetch(downloads / "asterisk")
    prompts = {} if root is None else asterisk.transcripts(root)
    recordings = {} if root is None else {n: asterisk.read_prompt(root, n) for n in prompts}
    limit = MAX_PROMPT_SECONDS * espeak.SAMPLE_RATE
    too_long = [name for name, samples in recordings.items() if len(samples) > limit]
    for name in too_long:
        del prompts[name]
    if too_long:
        logging.warning(
            "%d recorded prompts are longer than %.0f s and left out: %s",
            len(too_long),
            MAX_PROMPT_SECONDS,
            " ".join(sorted(too_long)),
        )
    human_train, human_test = split_prompts(prompts)
    if root is None:
        logging.warning("no recorded speech: the run goes on without the set %s", HUMAN_TEST)
    ready: list[str] = []
    plans = plan_utterances(scale, seed, human_test.values())
    for name, utterances in plans.items():
        if name in ON_REQUEST and name not in on_request:
            continue
        extra = human_train if name == HUMAN_TRAIN else {}
        _prepare_set(output / name, utterances, extra, recordings, nj)
        ready.append(name)
    if human_test:
        chosen = sorted(human_test)[: max(4, round(len(human_test) * min(scale, 1.0)))]
        _prepare_set(output / HUMAN_TEST, [], {n: human_test[n] for n in chosen}, recordings, nj)
        ready.append(HUMAN_TEST)
    return ready


def _prepare_set(
    folder: Path,
    utterances: list[espeak.Utterance],
    prompts: dict[str, str],
    recordings: dict[str, np.ndarray],
    nj: int,
) -> None:
    prompt_ids = {f"{asterisk.SPEAKER}-{n.replace('/', '_')}": n for n in prompts}
    plan = {
        "synthesiser": espeak.version(),
        "utterances": [[u.utt_id, u.text, u.voice, u.rate, u.pitch] for u in utterances],
        "prompts": {utt_id: prompts[name] for utt_id, name in sorted(prompt_ids.items())},
    }
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    marker = folder / "provenance.json"
    if (folder / "text").is_file() and marker.is_file():
        if json.loads(marker.read_text())["plan_sha256"] == digest:
            logging.info("%s: complete, left as it is", folder)
            return
        (folder / "text").unlink()
    text = {u.utt_id: u.text for u in utterances} | plan["prompts"]
    speakers = {u.utt_id: u.utt_id.split("-" + folder.name)[0] for u in utterances}
    speakers |= dict.fromkeys(prompt_ids, asterisk.SPEAKER)

    def all_audio() -> Iterable[tuple[str, np.ndarray]]:
        if utterances:
            spoken = espeak.synthesize(utterances, nj)
            # disable=None: no bar in a log file
            yield from tqdm(spoken, desc=folder.name, total=len(utterances), disable=None)
        for utt_id, name in prompt_ids.items():
            yield utt_id, recordings[name]

    folder.mkdir(parents=True, exist_ok=True)
    provenance = {
        "plan_sha256": digest,
        "synthesiser": plan["synthesiser"],
        "synthetic": len(utterances),
        "recorded": len(prompt_ids),
        "recorded_licence": "CC BY-SA 3.0, Allison Smith / Digium" if prompt_ids else None,
    }
    atomic_write_text(marker, json.dumps(provenance, indent=2) + "\n")
    _write_set(folder, all_audio(), text, speakers)
    logging.info("%s: %d utterances", folder, len(text))
