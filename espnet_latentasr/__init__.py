"""LatentASR and oracle-gap tools for ESPnet.  ``Speech2Text`` is imported when it is first asked for."""

from importlib import import_module

__version__ = "0.1.0"
__all__ = ["Speech2Text"]


def __getattr__(name: str):
    # Commands that need no model must start without torch, so nothing is imported here.
    if name == "Speech2Text":
        return import_module("espnet_latentasr.decode.speech2text").Speech2Text
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
