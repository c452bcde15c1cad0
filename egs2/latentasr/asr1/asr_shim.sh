#!/usr/bin/env bash
# Stages 5 and 10 to 13 by ESPnet's own asr.sh, with this plugin's training and decoding.  For a checkout of
# ESPnet with Kaldi's utils/ and this recipe in its egs2/; data and the frozen pass come from run.sh:
#   ./run.sh --stage 1 --stop_stage 6
#   ./asr_shim.sh [options of asr.sh]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
die() { echo "asr_shim.sh: $*" >&2; exit 1; }

# option NAME DEFAULT ARGUMENTS...: the last value of an option on the command line
option() {
    local name=$1 value=$2
    shift 2
    while [ $# -gt 1 ]; do
        [ "${1//-/_}" != "__${name}" ] || value=$2
        shift
    done
    echo "${value}"
}
expdir=$(option expdir exp "$@")
inference_config=$(option inference_config conf/decode_latent.yaml "$@")
python=$(option python python3 "$@")

# What ESPnet's recipes have links to, made where they are missing.
readonly template=../../TEMPLATE/asr1 kaldi=../../../tools/kaldi/egs/wsj/s5
for name in asr.sh scripts pyscripts; do
    [ -e "${name}" ] || [ ! -e "${template}/${name}" ] || ln -sfn "${template}/${name}" "${name}"
done
for name in utils steps; do
    [ -e "${name}" ] || [ ! -e "${kaldi}/${name}" ] || ln -sfn "${kaldi}/${name}" "${name}"
done
for name in asr.sh scripts pyscripts utils/parse_options.sh utils/split_scp.pl; do
    [ -e "${name}" ] || die "${name}: not found.  This is for a checkout of ESPnet (egs2/TEMPLATE/asr1) with" \
        "Kaldi's scripts (tools/kaldi); ./run.sh needs neither and gives the same results"
done
[ -e "${expdir}/backbone/backbone.json" ] \
    || die "${expdir}/backbone: no frozen recogniser; run ./run.sh --stage 1 --stop_stage 6 first"

. ./path.sh
# asr.sh calls calculate_rtf.py by its bare name; ESPnet's path.sh has its folder on PATH.
export PATH="${PWD}/../../../utils:${PWD}/pyscripts/utils:${PATH}"
command -v sclite >/dev/null || PATH="${PATH}:/usr/lib/sctk/bin" # where Debian's sctk has it

shim="${python} -m espnet_latentasr.bin.py --backbone_dir ${expdir}/backbone"
# Later options win, so the command line's own; --python has gone into the shim.
exec ./asr.sh --asr_task asr --stage 5 --stop_stage 13 --ngpu 0 --nj 2 --inference_nj 2 \
    --use_lm false --feats_normalize none --audio_format wav --token_type hugging_face \
    --hugging_face_model_name_or_path local/mini_backbone \
    --train_set activation_500 --valid_set valid_noisy --test_sets "test_text test_voice" \
    --asr_config conf/train_latent.yaml --inference_config "${inference_config}" \
    --inference_tag "$(basename "${inference_config}" .yaml)" \
    --inference_asr_model valid.ce.best.pth "$@" --python "${shim}"
