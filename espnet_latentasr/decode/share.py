"""One job's share of a set: its utterances, the audio of one batch at a time, and those that are bad.

Lengths come from headers, so the batches are known before any audio is in memory, and what cannot be
read is named before hours of work.  What proves bad only later costs itself alone: it is named and
counted, all others are kept, and the job fails at its end, for no test set loses an utterance silently.
Knows no search.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from espnet_latentasr.config import PromptConfig, config_hash
from espnet_latentasr.data.audio import clip_length, read_audio
from espnet_latentasr.data.journal import file_identity
from espnet_latentasr.data.kaldi_dir import KaldiDir, c_sorted
from espnet_latentasr.decode.batching import batches_by_length, check_lengths
from espnet_latentasr.decode.encoder_cache import EncoderCache
from espnet_latentasr.decode.journal import Journal
from espnet_latentasr.decode.recogniser import Clips, Recogniser
from espnet_latentasr.errors import DataError

Row = tuple[str, dict[str, Any]]
# Ids of a batch and the numbers of the journals that lack it -> the rows of each of these.
Decode = Callable[[list[str], list[int]], Sequence[Sequence[Row]]]


@dataclass(frozen=True)
class Share:
    """``utterances`` of ``data`` in C order: those of one job, of all ``everyone``."""

    data: KaldiDir
    languages: dict[str, str]
    everyone: list[str]
    utterances: list[str]

    @classmethod
    def load(cls, data_dir: Path, job: int, num_jobs: int) -> Share:
        """Utterances ``job, job + num_jobs, ...`` (1-based, C order) of a directory."""
        data = KaldiDir.load(data_dir)
        everyone = c_sorted(data.text)
        return cls(data, data.languages(), everyone, everyone[job - 1 :: num_jobs])

    def identity(self) -> str:
        """A hash of ids, audio files and languages of the whole share."""
        audio = [self.audio_identity(utt_id) for utt_id in self.utterances]
        languages = [self.languages[utt_id] for utt_id in self.utterances]
        return config_hash({"utterances": self.utterances, "audio": audio, "languages": languages})

    def audio_identity(self, utt_id: str) -> list:
        """Path, span, size and time of change: new samples under an old name are new data."""
        source = self.data.source(utt_id)
        return [*source, *file_identity(source.path)]

    def key(self, utt_id: str, *more: Any) -> str:
        """A hash of what one utterance's result depends on: audio, language, and ``more``."""
        return config_hash([self.audio_identity(utt_id), self.languages[utt_id], *more])

    def batches(
        self,
        recogniser: Recogniser,
        prompts: Iterable[PromptConfig],
        size: int,
        others: Iterable[str] = (),
    ) -> list[list[str]]:
        """Ids of clips of similar length, batch by batch.

        Args:
            others: utterances of other shares whose audio will be read as well.

        Raises:
            DataError: the first unusable file, with their number (the log has all), a clip that is too
                long, or a language that a prompt cannot name.
        """
        lengths: dict[str, int] = {}
        bad: list[DataError] = []
        for utt_id in dict.fromkeys([*self.utterances, *others]):
            source = self.data.source(utt_id)
            try:
                lengths[utt_id] = clip_length(source.path, utt_id, span=(source.start, source.end))
            except DataError as error:
                logging.error("%s", error)
                bad.append(error)
        if bad:
            more = f" (and {len(bad) - 1} more, see above)" if len(bad) > 1 else ""
            raise DataError(f"{bad[0]}{more}")
        check_lengths(lengths, recogniser.backbone.max_samples)
        for language, utt_id in {self.languages[u]: u for u in reversed(self.utterances)}.items():
            for prompt in prompts:
                try:
                    recogniser.backbone.text.prompt(language, prompt)
                except DataError as error:
                    raise DataError(f"{self.data.path}: utterance '{utt_id}': {error}") from None
        own = {utt_id: lengths[utt_id] for utt_id in self.utterances}
        return list(batches_by_length(own, size))

    def read(self, utt_id: str) -> np.ndarray:
        """Samples (S,) float32 at 16 kHz of any utterance of the set."""
        source = self.data.source(utt_id)
        return read_audio(source.path, utt_id, span=(source.start, source.end))

    def clips(self, utterances: Sequence[str], cache: EncoderCache, limit: int | None) -> Clips:
        """Audio of some utterances, with their embeddings if the cache has all of them."""
        audio = {utt_id: self.read(utt_id) for utt_id in utterances}
        check_lengths(audio, limit)
        known = [cache.read(utt_id, clip) for utt_id, clip in audio.items()]
        whole = None if any(entry is None for entry in known) else known
        return Clips(list(audio.values()), [self.languages[utt_id] for utt_id in utterances], whole)


def work_off(
    share: Share, batches: Sequence[list[str]], journals: Sequence[Journal], decode: Decode
) -> int:
    """Decode what the journals lack, a whole batch at a time; return the number of utterances.

    A batch that a kill cut, or that had a bad utterance, is done again as a whole: results are then
    those of a run that was never disturbed.

    Raises:
        DataError: utterances that could not be decoded, when all others have been.
    """

    def lacking(batch: list[str]) -> list[int]:
        return [n for n, journal in enumerate(journals) if not all(u in journal for u in batch)]

    todo = [batch for batch in batches if lacking(batch)]
    problems: dict[str, str] = {}
    for batch in tqdm(todo, desc=share.data.path.name, disable=None):
        which = lacking(batch)
        for number, rows in zip(which, _attempt(decode, batch, which, problems)):
            journals[number].add(rows)
    if problems:
        first = c_sorted(problems)[0]
        raise DataError(
            f"{share.data.path}: {len(problems)} of {len(share.utterances)} utterances could not be "
            f"decoded, the first: {problems[first]}; all are named above. The others are kept in "
            f"{journals[0].path}: mend these and run the stage again, which decodes no more than them"
        )
    return sum(map(len, todo))


def _attempt(
    decode: Decode, batch: list[str], which: list[int], problems: dict[str, str]
) -> Sequence[Sequence[Row]]:
    """Rows of a batch; where its data are bad, of each utterance alone, so that it is known which."""
    try:
        return decode(batch, which)
    except DataError as error:
        if len(batch) == 1:
            text = " ".join(str(error).split())
            problems[batch[0]] = text if f"'{batch[0]}'" in text else f"utterance '{batch[0]}': {text}"
            logging.error("left out: %s", problems[batch[0]])
            return [[] for _ in which]
    alone = [_attempt(decode, [utt_id], which, problems) for utt_id in batch]
    return [[row for rows in parts for row in rows] for parts in zip(*alone)]
