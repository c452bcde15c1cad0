"""LatentASR's method; imports torch only.  Start with ``loop.py``."""
