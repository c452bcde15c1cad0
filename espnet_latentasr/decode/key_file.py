"""Decoding the utterances of a key file, as ESPnet's asr.sh cuts a set into jobs; chooses nothing."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from espnet_latentasr.config import DecodeConfig
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table
from espnet_latentasr.decode.job import Rule, run_job
from espnet_latentasr.decode.loading import Loaded
from espnet_latentasr.decode.merge import job_dir
from espnet_latentasr.errors import ConfigError


def decode_keys(
    loaded: Loaded, config: DecodeConfig, data_dir: Path, key_file: Path, output: Path
) -> int:
    """Decode some utterances of a set into ``output``, whose layout is that of every job.

    Returns:
        Number of utterances.

    Raises:
        ConfigError: a rule that needs the whole set.
        DataError: a key that is no utterance of the set.
    """
    if config.latents == "swapped":
        raise ConfigError(
            "latents: swapped takes the next utterance of the whole set, but asr.sh's jobs see their "
            "part only; decode with run.sh --stage 12"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".decode_keys_", dir=output.parent) as temporary:
        part = Path(temporary) / data_dir.name
        keys = read_kaldi_table(key_file, allow_empty=True)
        KaldiDir.load(data_dir).subset(keys).save(part)
        done = run_job(loaded, [Rule("keys", config)], part, Path(temporary), 1, 1)
        share = job_dir(Path(temporary), "keys", part.name, 1)
        shutil.rmtree(output, ignore_errors=True)
        share.rename(output)
    return done
