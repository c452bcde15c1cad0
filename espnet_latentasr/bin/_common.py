"""What all commands share: logging, one-line errors, parallel jobs; knows no data and no model."""

from __future__ import annotations

import argparse
import atexit
import logging
import multiprocessing
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import refusal

logger = logging.getLogger(__name__)
LOG_FORMAT = "%(asctime)s (%(module)s:%(lineno)d) %(levelname)s: %(message)s"


class _LevelCounter(logging.Handler):
    """Count records by level, so that a log's last line says whether to read the rest."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        self.counts[record.levelname] += 1

    def report(self) -> None:
        logger.info(
            "finished with %d warnings, %d errors", self.counts["WARNING"], self.counts["ERROR"]
        )


def setup_logging(level: str = "INFO") -> None:
    """Log to stderr in ESPnet's format: first the command, at exit the count of warnings.

    Handlers that are already there, as a test's or a notebook's, are left alone.
    """
    root = logging.getLogger()
    logging.basicConfig(format=LOG_FORMAT)
    root.setLevel(level)
    if not any(isinstance(handler, _LevelCounter) for handler in root.handlers):
        counter = _LevelCounter()
        root.addHandler(counter)
        atexit.register(counter.report)
    logger.info("%s", " ".join([sys.executable, *sys.argv]))


def run_main(main: Callable[[], Any]) -> NoReturn:
    """Run a command and exit: 1 and one line on stderr for wrong data or configuration."""
    try:
        main()
    except (DataError, ConfigError) as error:
        logger.error("%s", " ".join(str(error).split("\n")))
        sys.exit(1)
    except OSError as error:
        # Of files that libraries write: a full disk has its one line there as well.
        if (told := refusal(error)) is None:
            raise
        logger.error("%s", told)
        sys.exit(1)
    sys.exit(0)


def str2bool(value: str) -> bool:
    """Parse ``true`` or ``false``, the two words ESPnet's scripts pass for a switch."""
    if value.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"'{value}' is neither true nor false")
    return value.lower() == "true"


@contextmanager
def job_map(nj: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a `map` over ``nj`` processes; results come in the order of the jobs for any ``nj``.

    Processes are spawned, so functions and jobs must be picklable and hold all they need.
    """
    if nj < 1:
        raise ConfigError(f"--nj {nj}: at least 1 process expected")
    if nj == 1:
        yield map
        return
    # An executor, not a Pool: a worker killed for memory is then an error instead of a hang.
    spawn = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(nj, mp_context=spawn, initializer=_end_with_parent)
    try:
        yield lambda function, jobs: executor.map(function, jobs, chunksize=8)
    finally:
        executor.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this worker when its parent is gone: a killed command must leave no process behind."""

    def watch() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
