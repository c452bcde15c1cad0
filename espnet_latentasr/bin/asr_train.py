"""ESPnet's own asr_train, also where torchaudio cannot be imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from espnet_latentasr.bin._common import run_main


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    from espnet_latentasr.toolkit.asr import ASRTask

    ASRTask.main(cmd=list(sys.argv[1:] if cmd is None else cmd))


if __name__ == "__main__":
    run_main(main)
