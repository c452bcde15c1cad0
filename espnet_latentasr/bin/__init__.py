"""Commands: argparse only; each is run as ``python -m espnet_latentasr.bin.NAME``."""
