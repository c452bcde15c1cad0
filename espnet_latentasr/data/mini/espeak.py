"""Speech synthesis with the eSpeak NG library; knows voices and samples, nothing about corpora.

eSpeak keeps hidden state (flutter tables, the C library's random numbers) from one utterance to the
next, so the same call gives other samples depending on what was said before.  Every utterance is
therefore spoken in a fresh process forked from one that has never spoken: the audio depends on the
utterance alone, whatever the order or the number of jobs.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import Connection

import numpy as np
import soxr

from espnet_latentasr.errors import DataError

SAMPLE_RATE = 16000
_PEAK = 0.6
_MARGIN_SECONDS = 0.1
_AUDIO_OUTPUT_SYNCHRONOUS = 2
_CHARS_UTF8 = 1
_PARAMETER_RATE, _PARAMETER_PITCH = 1, 3


@dataclass(frozen=True)
class Utterance:
    """What to say and how: rate in words per minute, pitch 0..99 (eSpeak's units)."""

    utt_id: str
    text: str
    voice: str
    rate: int
    pitch: int


def _library() -> tuple[ctypes.CDLL, bytes | None]:
    """Load the library of the ``espeakng-loader`` wheel, else the system's."""
    try:
        import espeakng_loader
    except ImportError:
        name = ctypes.util.find_library("espeak-ng")
        if name is None:
            raise DataError(
                "eSpeak NG not found: the mini corpus needs its library; run "
                "'pip install espeakng-loader==0.2.4' or 'apt-get install espeak-ng'"
            ) from None
        return ctypes.CDLL(name), None
    path = espeakng_loader.get_library_path()
    return ctypes.CDLL(path), espeakng_loader.get_data_path().encode()


def version() -> str:
    """Name the eSpeak NG in use, for the provenance file of a corpus."""
    library, _ = _library()
    library.espeak_Info.restype = ctypes.c_char_p
    engine = library.espeak_Info(None).decode().split(" ")[0]
    try:
        return f"espeak-ng {engine} (espeakng-loader {metadata.version('espeakng-loader')})"
    except metadata.PackageNotFoundError:
        return f"espeak-ng {engine} (system library)"


def _speak(utterance: Utterance) -> tuple[np.ndarray, int]:
    """Run the engine once; only ever called in a process that has not spoken before."""
    library, data = _library()
    callback_type = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
    )
    chunks: list[np.ndarray] = []

    @callback_type
    def collect(samples, count, _events):
        if count > 0:
            chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    rate = library.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, 0, data, 0)
    if rate <= 0:
        raise DataError(f"eSpeak NG did not start (code {rate}); is its data folder complete?")
    library.espeak_SetSynthCallback(collect)
    if library.espeak_SetVoiceByName(utterance.voice.encode()) != 0:
        raise DataError(f"utterance '{utterance.utt_id}': no eSpeak voice '{utterance.voice}'")
    ctypes.CDLL(None).srand(1)
    if hasattr(library, "espeak_ng_SetRandSeed"):
        library.espeak_ng_SetRandSeed(ctypes.c_long(1))
    library.espeak_SetParameter(_PARAMETER_RATE, utterance.rate, 0)
    library.espeak_SetParameter(_PARAMETER_PITCH, utterance.pitch, 0)
    text = utterance.text.encode() + b"\0"
    library.espeak_Synth(text, len(text), 0, 0, 0, _CHARS_UTF8, None, None)
    library.espeak_Synchronize()
    if not chunks:
        raise DataError(f"utterance '{utterance.utt_id}': eSpeak produced no audio")
    return np.concatenate(chunks), rate


def _synthesize_one(utterance: Utterance) -> tuple[str, np.ndarray]:
    samples, rate = _speak(utterance)
    audio = soxr.resample(samples.astype(np.float32) / 32768.0, rate, SAMPLE_RATE)
    loud = np.flatnonzero(np.abs(audio) > 0.01 * np.abs(audio).max())
    if len(loud) == 0:
        raise DataError(f"utterance '{utterance.utt_id}': eSpeak produced silence")
    margin = int(_MARGIN_SECONDS * SAMPLE_RATE)
    audio = audio[max(0, loud[0] - margin) : loud[-1] + 1 + margin]
    return utterance.utt_id, np.round(audio / np.abs(audio).max() * _PEAK * 32767).astype(np.int16)


def _child(utterance: Utterance, answer: Connection) -> None:
    try:
        answer.send(_synthesize_one(utterance))
    except Exception as error:  # any failure belongs to the parent, with its own message
        answer.send(error)


def _in_fresh_process(utterance: Utterance) -> tuple[str, np.ndarray]:
    context = multiprocessing.get_context("fork")
    answer, question = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(utterance, question), daemon=True)
    process.start()
    question.close()
    try:
        found = answer.recv()
    except EOFError:
        found = DataError(f"utterance '{utterance.utt_id}': the eSpeak process died")
    process.join()
    if isinstance(found, Exception):
        raise found
    return found


def synthesize(utterances: Iterable[Utterance], nj: int) -> Iterator[tuple[str, np.ndarray]]:
    """Speak utterances in order; yields (utterance id, int16 samples (S,) at 16 kHz).

    Raises:
        DataError: no such voice, no engine, or the engine died.
    """
    context = multiprocessing.get_context("fork")
    # Forking is most of the cost, so each of nj processes that never speak forks its own speakers.
    with ProcessPoolExecutor(nj, mp_context=context) as executor:
        yield from executor.map(_in_fresh_process, utterances, chunksize=4)
