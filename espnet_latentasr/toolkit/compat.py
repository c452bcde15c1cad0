"""What it takes to import ESPnet here: torchaudio, and one place for ESPnet's names.

ESPnet imports torchaudio at module level (its beamformers), also where no audio function of it is ever
called, and torchaudio's wheels are built for CUDA.  Where it cannot be imported, a placeholder stands
in whose every use is an error; the plugin itself uses none of it.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types

_MODULES = (
    "torchaudio",
    "torchaudio.functional",
    "torchaudio.transforms",
    "torchaudio.compliance",
    "torchaudio.compliance.kaldi",
    "torchaudio.models",
)


class _Missing(types.ModuleType):
    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(
            f"{self.__name__}.{name} was used, but torchaudio cannot be imported in this environment; "
            "install a torchaudio that fits your torch"
        )


def ensure_torchaudio() -> None:
    """Import torchaudio, or put placeholders into ``sys.modules``; call before importing ESPnet."""
    if "torchaudio" in sys.modules:
        return
    # Its answer to "is torchaudio there?" is asked once and kept: it must be asked before this.
    import transformers  # noqa: F401

    try:
        import torchaudio  # noqa: F401
    except (ImportError, OSError):
        for name in _MODULES:
            module = _Missing(name)
            module.__path__ = []
            module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            sys.modules[name] = module
        for name in _MODULES[1:]:
            parent, _, child = name.rpartition(".")
            setattr(sys.modules[parent], child, sys.modules[name])


ensure_torchaudio()

from espnet2.tasks.abs_task import AbsTask  # noqa: E402
from espnet2.torch_utils.device_funcs import force_gatherable  # noqa: E402
from espnet2.train.abs_espnet_model import AbsESPnetModel  # noqa: E402
from espnet2.train.collate_fn import CommonCollateFn  # noqa: E402
from espnet2.train.preprocessor import AbsPreprocessor  # noqa: E402
from espnet2.train.trainer import Trainer  # noqa: E402
from espnet2.utils.nested_dict_action import NestedDictAction  # noqa: E402
from espnet2.utils.types import str2bool  # noqa: E402

__all__ = [
    "AbsESPnetModel",
    "AbsPreprocessor",
    "AbsTask",
    "CommonCollateFn",
    "NestedDictAction",
    "Trainer",
    "force_gatherable",
    "str2bool",
]
