"""LatentASR and oracle-gap tools for ESPnet."""

__version__ = "0.1.0"
