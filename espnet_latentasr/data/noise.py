"""Noisy copies of data directories: Gaussian or recorded noise, at one SNR or at a drawn one.

The noise of an utterance is the same in any order, process or subset, and utterance ids stay as
they are, so results on a clean set and on its noisy copies are paired.  ``utt2noise`` holds, per
utterance, ``seed snr achieved gain``: SNRs in dB (``clean`` where no noise was added), the third
measured after PCM16, the fourth the factor that kept the mixture below full scale.  With recorded
noise, ``noise.tsv`` adds which piece of which recording it was, and the samples that would have
clipped without the gain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from espnet_latentasr.data.audio import AudioError, AudioProblem, read_audio, to_pcm16, write_wav
from espnet_latentasr.data.format import ids_alike, refuse_overwriting
from espnet_latentasr.data.journal import MapFunction, file_identity, run_jobs
from espnet_latentasr.data.kaldi_dir import (
    AudioSource,
    KaldiDir,
    check_other_dir,
    read_kaldi_table,
    write_kaldi_table,
)
from espnet_latentasr.data.mixing import (
    Mixture,
    checked_snr,
    draw_snr,
    mix_at_snr,
    noise_rng,
    snr,
    stable_hash,
)
from espnet_latentasr.data.recorded_noise import (
    NoiseFile,
    choose_noise,
    cut_noise,
    list_noise,
    read_noise,
)
from espnet_latentasr.data.skipped import write_skipped
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text

MARKER = "noise.json"
JOURNAL = ".noise_journal.jsonl"  # of an unfinished copy
TABLE = "noise.tsv"
COLUMNS = ("utt", "seed", "snr", "achieved", "gain", "clipped", "noise", "start", "fit")
MIXED_SNRS = (None, 0.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class NoiseJob:
    """One utterance to copy; ``snr_db`` None copies it without noise, ``noise`` None adds white noise."""

    utt_id: str
    source: AudioSource
    target: str
    snr_db: float | None
    seed: int
    noise: NoiseFile | None = None

    def fingerprint(self) -> str:
        """Hash the job and the identity of the files it reads."""
        files = [file_identity(self.source.path), file_identity(self.noise.path) if self.noise else []]
        return hashlib.sha256(json.dumps([asdict(self), files]).encode()).hexdigest()


@dataclass(frozen=True)
class NoiseResult:
    """A copied utterance: its ``utt2noise`` value and its piece of noise, or what is wrong."""

    utt_id: str
    fingerprint: str
    path: str = ""
    value: str = ""
    clipped: int = 0
    piece: str = "-\t-\t-"  # recording, start in seconds, cropped or looped
    problem: AudioProblem | None = None

    @property
    def row(self) -> str:
        """Line of ``noise.tsv``."""
        return "\t".join([self.utt_id, *self.value.split(), str(self.clipped), self.piece])


def copy_utterance(job: NoiseJob) -> NoiseResult:
    """Write one utterance as 16 kHz PCM16; a bad one is a result, not an exception."""
    mark = job.fingerprint()
    try:
        clean = read_audio(job.source.path, job.utt_id, span=job.source[1:])
    except AudioError as error:
        return NoiseResult(job.utt_id, mark, problem=error.problem)
    if job.snr_db is None:
        write_wav(job.target, clean)
        return NoiseResult(job.utt_id, mark, job.target, f"{job.seed} clean clean 1.0")
    if job.noise is None:
        noise = noise_rng(job.seed, job.utt_id, job.snr_db).standard_normal(clean.size)
        piece = NoiseResult.piece
    else:
        noise, piece = _recorded_piece(job, clean.size)
    mix = mix_at_snr(clean, noise, job.snr_db)
    pcm = to_pcm16(mix.samples)
    write_wav(job.target, pcm)
    value = _utt2noise(job, clean, pcm, mix)
    return NoiseResult(job.utt_id, mark, job.target, value, mix.clipped, piece)


def _utt2noise(job: NoiseJob, clean: np.ndarray, pcm: np.ndarray, mix: Mixture) -> str:
    achieved = snr(mix.gain * clean.astype(np.float64), pcm / 32768)
    return f"{job.seed} {job.snr_db:g} {achieved:.4f} {mix.gain!r}"


def _recorded_piece(job: NoiseJob, num_samples: int) -> tuple[np.ndarray, str]:
    """Return an utterance's piece of its recording, and what ``noise.tsv`` says of it."""
    key = stable_hash(job.seed, job.utt_id, "start")
    try:
        noise = read_noise(job.noise.path, Path(job.noise.path).stat().st_mtime_ns)
        piece, start = cut_noise(noise, num_samples, key)
    except (DataError, OSError) as error:
        raise DataError(f"{job.noise.path}: noise of utterance '{job.utt_id}': {error}") from error
    fit = "looped" if len(noise) < num_samples else "cropped"
    return piece, f"{job.noise.noise_id}\t{start:.2f}\t{fit}"


def noisy_copy(
    src_dir: str | Path, dst_dir: str | Path, snr_db: float, seed: int, map_fn: MapFunction = map
) -> dict[str, str]:
    """Copy a Kaldi directory with white noise at one SNR; see `mixed_snr_copy`."""
    return mixed_snr_copy(src_dir, dst_dir, (snr_db,), seed, map_fn)


def mixed_snr_copy(
    src_dir: str | Path,
    dst_dir: str | Path,
    snrs: Sequence[float | None] = MIXED_SNRS,
    seed: int = 0,
    map_fn: MapFunction = map,
    *,
    noise_from: str | Path | None = None,
    ids: Iterable[str] | None = None,
    skip_unusable: bool = False,
) -> dict[str, str]:
    """Copy a Kaldi directory, each utterance at the SNR its own hash draws (None: clean).

    Audio goes to ``dst_dir/wavs`` as 16 kHz mono PCM16, ids stay.  A rerun with the same parameters
    and sources does nothing, after a kill it does the rest, and any other redoes the copy.

    Args:
        noise_from: folder or ``noise.scp`` of recorded noise (see `recorded_noise`); None: white.
        ids: copy these utterances only.
        skip_unusable: leave unusable utterances out and list them in ``dst_dir/skipped.tsv``.

    Returns:
        ``utt2noise``.

    Raises:
        DataError: an invalid directory, or all unusable utterances once the others are written.
    """
    dst = Path(dst_dir)
    check_other_dir(Path(src_dir), dst)
    data = KaldiDir.load(src_dir, allow_empty_text=True)
    data = data if ids is None else data.subset(ids)
    snrs = [None if snr_db is None else checked_snr(snr_db) for snr_db in snrs]
    if not snrs:
        raise DataError("no SNR given; name at least one, None for clean")
    files = None if noise_from is None else list_noise(noise_from)
    jobs = [
        NoiseJob(
            utt, data.source(utt), str(dst / "wavs" / f"{utt}.wav"), draw_snr(seed, utt, snrs), seed,
            files and choose_noise(files, seed, utt),
        )
        for utt in data.utts
    ]  # fmt: skip
    marker = _marker_text(data, snrs, seed, files, skip_unusable)
    if (dst / MARKER).exists() and (dst / MARKER).read_text(encoding="utf-8") == marker:
        values = read_kaldi_table(dst / "utt2noise")
        if all(Path(job.target).exists() for job in jobs if job.utt_id in values):
            return values
    refuse_overwriting((job.source.path, job.target) for job in jobs)
    ids_alike(data.utts, dst)
    for name in (MARKER, "wav.scp", TABLE, "skipped.tsv"):
        (dst / name).unlink(missing_ok=True)
    results, _ = run_jobs(copy_utterance, jobs, dst / JOURNAL, NoiseResult, map_fn)
    problems = [result.problem for result in results if result.problem]
    good = {result.utt_id: result for result in results if not result.problem}
    if problems and not (skip_unusable and good):
        raise DataError(
            f"{src_dir}: {len(problems)} of {len(jobs)} utterances are unusable, and a noisy copy "
            "must lose none; repair them, copy the formatted set, or skip them on purpose "
            "(--skip_unusable true): " + " | ".join(map(str, problems))
        )
    if skip_unusable:
        write_skipped(dst / "skipped.tsv", ((p.utt_id, p.reason, p.detail) for p in problems))
    values = {utt: result.value for utt, result in good.items()}
    write_kaldi_table(dst / "utt2noise", values)
    if files:
        rows = ["\t".join(COLUMNS), *(result.row for result in good.values())]
        atomic_write_text(dst / TABLE, "\n".join(rows) + "\n")
    wav = {utt: result.path for utt, result in good.items()}
    replace(data.subset(good), wav=wav, segments=None).save(dst)
    atomic_write_text(dst / MARKER, marker)
    (dst / JOURNAL).unlink()
    return values


def _marker_text(
    data: KaldiDir,
    snrs: list[float | None],
    seed: int,
    files: list[NoiseFile] | None,
    skip_unusable: bool,
) -> str:
    """Describe all that a copy depends on: parameters, tables and identity of the audio files."""
    tables = [data.wav, data.text, data.utt2spk, data.utt2lang, data.segments]
    content = [tables, {path: file_identity(path) for path in sorted(data.wav.values())}]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    marker = {"seed": seed, "snrs": snrs, "source_sha256": digest}
    if files:
        known = [[file.noise_id, file_identity(file.path)] for file in files]
        marker["noise_files"] = len(files)
        marker["noise_sha256"] = hashlib.sha256(json.dumps(known).encode()).hexdigest()
    if skip_unusable:
        marker["skip_unusable"] = True
    return json.dumps(marker) + "\n"
