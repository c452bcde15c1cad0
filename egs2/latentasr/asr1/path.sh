# shellcheck shell=bash
# Choose the Python of the recipe and set what every command of it needs; sourced, never run.

# Always this checkout: another MAIN_ROOT in the environment is another toolkit's.
MAIN_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
export MAIN_ROOT

# True when this interpreter has the packages; their metadata is read, none is imported.
latentasr_python_fits() {
    "$1" - >/dev/null 2>&1 <<'PYTHON'
import re, sys
from importlib.metadata import version

def numbers(name):
    return tuple(int(n) for n in re.match(r"\d+(?:\.\d+)*", version(name)).group().split("."))

numbers("torch"), numbers("espnet")
sys.exit(not (5, 15) <= numbers("transformers") < (5, 40))
PYTHON
}

_venv="${MAIN_ROOT}/tools/venv"
if [ -e "${_venv}/latentasr_install" ] && grep -q '^unfinished' "${_venv}/latentasr_install" \
    || ! latentasr_python_fits "${_venv}/bin/python"; then
    # No environment of our own, or an unfinished one: an activated one serves as well.
    if latentasr_python_fits python3; then
        _venv=""
    else
        echo "path.sh: no Python with espnet, torch and transformers>=5.15,<5.40 in ${_venv} or on" \
            "PATH: running tools/install.sh" >&2
        "${MAIN_ROOT}/tools/install.sh" || { echo "path.sh: tools/install.sh failed" >&2; exit 1; }
    fi
fi
if [ -n "${_venv}" ]; then
    export VIRTUAL_ENV="${_venv}" PATH="${_venv}/bin:${PATH}"
fi
unset _venv

export PYTHONPATH="${MAIN_ROOT}${PYTHONPATH:+:${PYTHONPATH}}"
export LC_ALL=C PYTHONIOENCODING=UTF-8
# One thread per process: jobs run side by side.  PASSIVE: waiting threads leave the core to others.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
# glibc gives the memory of large tensors back after each use, and zeroing it again for the next took 40 %
# of a training step on a CPU; a process holds more memory for it (MALLOC_MMAP_MAX_=65536 undoes it).
export MALLOC_MMAP_MAX_="${MALLOC_MMAP_MAX_:-0}" MALLOC_TOP_PAD_="${MALLOC_TOP_PAD_:-67108864}"
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-100000000000}"
export HF_HUB_DISABLE_TELEMETRY=1 TOKENIZERS_PARALLELISM=false

if [ -f local/path.sh ]; then
    # shellcheck source=local/path.sh
    . local/path.sh
fi
