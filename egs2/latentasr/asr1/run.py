#!/usr/bin/env python3
"""The recipe under ESPnet3: training and decoding; data and caches are made by run.sh, stages 1 to 10."""

from espnet3.systems.launch import launch

from espnet_latentasr.toolkit.espnet3 import LatentASRSystem

if __name__ == "__main__":
    launch(LatentASRSystem, conf_package="egs3.TEMPLATE.esp2_asr")
