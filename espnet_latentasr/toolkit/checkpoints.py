"""ESPnet's Trainer with checkpoints that are whole or not there, in a folder that one training writes.

ESPnet writes an epoch in steps: the checkpoint, the epoch's parameters, then links to the latest and the
best.  A kill between them, or in the midst of one, would leave a folder that cannot be resumed or, worse,
that resumes with a link to the wrong epoch.  Here every file replaces the old one when it is whole, the
epoch's parameters come before the checkpoint that counts the epoch as done, and links are set again
before training goes on.  The checkpoint before the last is kept while training runs.
"""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from espnet2.train.reporter import Reporter

from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import WriteError, atomic_path, exclusive, zip_damage
from espnet_latentasr.toolkit.compat import Trainer

CHECKPOINT, PREVIOUS, DAMAGED = "checkpoint.pth", "checkpoint.previous.pth", "checkpoint.damaged.pth"
# What ESPnet's reporter and a trainer's state hold besides tensors and plain Python values.
PLAIN = [
    datetime.timedelta,
    np._core.multiarray.scalar,
    np.dtype,
    *(type(np.dtype(code)) for code in "?bhilqBHILQefd"),
]
_save = torch.save


def save_whole(obj: Any, path: Path, *args, **kwargs) -> None:
    """``torch.save`` to a file that is on the disk, whole, before it has its name.

    Raises:
        WriteError: the disk is full, or refuses otherwise.
    """
    try:
        with atomic_path(path) as temporary:
            # A file, not a name: the name would become part of the content.
            with open(temporary, "wb") as file:
                _save(obj, file, *args, **kwargs)
                file.flush()
                os.fsync(file.fileno())
            if path.name == CHECKPOINT and path.exists():
                with suppress(OSError):  # a file system without hard links
                    _replace_link(path.with_name(PREVIOUS), lambda link: os.link(path, link))
    except RuntimeError as error:  # PyTorch's, of a disk with room: a limit or a fault
        raise WriteError(f"{path}: cannot be written ({error}); see to the disk and limits") from error


def _replace_link(path: Path, make) -> None:
    spare = path.with_name(f".{path.name}.partial")
    spare.unlink(missing_ok=True)
    make(spare)
    os.replace(spare, path)


@contextmanager
def whole_saves() -> Iterator[None]:
    """Have ESPnet's ``torch.save`` write whole files, an epoch's parameters before its checkpoint."""

    def save(obj: Any, f: Any, *args, **kwargs) -> None:
        if not isinstance(f, str | os.PathLike):
            _save(obj, f, *args, **kwargs)
            return
        path = Path(f)
        if path.name == CHECKPOINT:
            save_whole(obj["model"], path.with_name(f"{obj['reporter']['epoch']}epoch.pth"))
        save_whole(obj, path, *args, **kwargs)

    torch.save = save
    try:
        yield
    finally:
        torch.save = _save


def _read(path: Path, mmap: bool = False) -> dict[str, Any]:
    with torch.serialization.safe_globals(PLAIN):
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)


def _load(path: Path) -> tuple[dict[str, Any] | None, str]:
    """A checkpoint's content, or None and what is wrong with it."""
    if problem := zip_damage(path):
        return None, problem
    try:
        return _read(path), ""
    except Exception as error:  # the unpickler's refusals have no common type
        return None, " ".join(str(error).split())


def mend(output: Path, best_model_criterion, keep: int) -> None:
    """Bring a killed training's folder to the state right after its last whole epoch.

    A damaged checkpoint is put aside; the one before it takes its place, or training begins anew.  Both
    end with the same parameters as an undisturbed training.

    Raises:
        DataError: the parameters of an earlier epoch are needed, but damaged.
    """
    checkpoint, previous = output / CHECKPOINT, output / PREVIOUS
    if not checkpoint.exists():
        return
    states, problem = _load(checkpoint)
    if states is None:
        os.replace(checkpoint, output / DAMAGED)
        states = _load(previous)[0] if previous.exists() else None
        if states is None:
            logging.warning("%s: damaged (%s), put aside; training begins anew", checkpoint, problem)
            return
        os.replace(previous, checkpoint)
        logging.warning("%s: damaged (%s), put aside; going back by an epoch", checkpoint, problem)
    reporter = Reporter()
    reporter.load_state_dict(states["reporter"])
    epoch = reporter.get_epoch()
    last = output / f"{epoch}epoch.pth"
    if zip_damage(last):
        save_whole(states["model"], last)
    links, needed = {"latest.pth": epoch}, set()
    for phase, key, mode in best_model_criterion:
        if reporter.has(phase, key):
            links[f"{phase}.{key}.best.pth"] = reporter.get_best_epoch(phase, key, mode)
            needed |= set(reporter.sort_epochs(phase, key, mode)[:keep])
    for one in sorted({*links.values(), *needed}):
        path = output / f"{one}epoch.pth"
        if path.exists() and (problem := zip_damage(path)):
            raise DataError(
                f"{path}: damaged ({problem}), and among the best epochs; put a copy of it there, or "
                f"remove {checkpoint} to train anew, which ends with the same parameters"
            )
    for name, one in links.items():
        target = f"{one}epoch.pth"
        if (output / target).exists():
            _replace_link(output / name, lambda link, target=target: link.symlink_to(target))
    for one in set(range(1, epoch)) - needed:
        (output / f"{one}epoch.pth").unlink(missing_ok=True)


def _ended_early(output: Path, options) -> int | None:
    """The epoch after which training had stopped for want of progress, if it had."""
    if options.patience is None or not options.resume or not (output / CHECKPOINT).exists():
        return None
    states = _read(output / CHECKPOINT, mmap=True)
    reporter = Reporter()
    reporter.load_state_dict(states["reporter"])
    ended = reporter.check_early_stopping(options.patience, *options.early_stopping_criterion)
    return reporter.get_epoch() if ended else None


class WholeTrainer(Trainer):
    """Trains in a locked folder, with whole checkpoints; everything else is ESPnet's."""

    @classmethod
    def run(cls, model, trainer_options, distributed_option, **kwargs) -> None:
        output, options = Path(trainer_options.output_dir), trainer_options
        with ExitStack() as stack:
            first = not distributed_option.distributed or distributed_option.dist_rank == 0
            if first:
                stack.enter_context(exclusive(output))
                if options.resume:
                    kept = options.keep_nbest_models
                    most = kept if isinstance(kept, int) else max(kept, default=1)
                    mend(output, options.best_model_criterion, most)
            if distributed_option.distributed:
                torch.distributed.barrier()
            stack.enter_context(whole_saves())
            if ended := _ended_early(output, options):
                logging.info("training had ended early after epoch %d", ended)
                options.max_epoch = ended
            cls.begin(model=model, trainer_options=options, **kwargs)
            super().run(
                model=model, trainer_options=options, distributed_option=distributed_option, **kwargs
            )
            if first:
                (output / PREVIOUS).unlink(missing_ok=True)
                (output / DAMAGED).unlink(missing_ok=True)

    @classmethod
    def begin(cls, model, trainer_options, **kwargs) -> None:
        """What is done once the folder is locked and mended, before the first epoch; nothing here."""
