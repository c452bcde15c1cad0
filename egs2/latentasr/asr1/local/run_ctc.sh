#!/usr/bin/env bash
# Train a stock ESPnet CTC model on the frozen recogniser's audio embeddings, and write its posteriors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stage=1
stop_stage=5
asr_config=conf/ctc/train_ctc.yaml
asr_tag=ctc
asr_args=""
train_set=backbone_train
num_train=8345
valid_set=valid
sets="valid_large test_large"
vocab_size=100
seed=1
expdir=exp
dumpdir=dump
help_message="Usage: local/run_ctc.sh [--option VALUE ...] [options of run.sh]

Stages: 1 data and embeddings (run.sh stages 1 to 6) · 2 subwords · 3 statistics · 4 training
        5 posteriors of --sets, below <expdir>/<asr_tag>/posteriors/<set>_mixed

  --stage, --stop_stage  ${stage}, ${stop_stage}
  --asr_config   ${asr_config}, of espnet2.bin.asr_train
  --asr_tag      ${asr_tag}: name below --expdir
  --asr_args     more arguments of espnet2.bin.asr_train
  --train_set    ${train_set}, and --num_train ${num_train}: how many of its utterances
  --valid_set    ${valid_set}: chooses the checkpoint
  --sets         \"${sets}\": decoded at mixed SNRs
  --vocab_size   ${vocab_size} subwords.  The embeddings have 13 frames a second, so that characters do not fit
  --seed ${seed}, --expdir ${expdir}, --dumpdir ${dumpdir}

A rerun continues where the last one stopped."

run_options=()
while [ $# -gt 0 ]; do
    case "$1" in
        --help | -h) echo "${help_message}"; exit 0 ;;
        --stage | --stop_stage | --asr_config | --asr_tag | --asr_args | --train_set | --num_train \
            | --valid_set | --sets | --vocab_size | --seed | --expdir | --dumpdir)
            [ $# -ge 2 ] || { echo "local/run_ctc.sh: $1 needs a value" >&2; exit 2; }
            printf -v "${1#--}" '%s' "$2"
            shift 2 ;;
        --*)
            [ $# -ge 2 ] || { echo "local/run_ctc.sh: $1 needs a value" >&2; exit 2; }
            run_options+=("$1" "$2")
            shift 2 ;;
        *) echo "local/run_ctc.sh: '$1' is not an option; --help lists them" >&2; exit 2 ;;
    esac
done

. ./path.sh
. ./cmd.sh
exp="${expdir}/${asr_tag}" stats="${expdir}/${asr_tag}_stats" cache="${expdir}/backbone/cache"
train="activation_${num_train}" valid="${valid_set}_noisy"
begin() {
    [ "${stage}" -le "$1" ] && [ "${stop_stage}" -ge "$1" ] || return 1
    echo "$(date '+%Y-%m-%dT%H:%M:%S') (run_ctc.sh) Stage $1: $2"
}

if begin 1 "data and embeddings of ${train_set}, ${valid_set}, ${sets}"; then
    ./run.sh --stage 1 --stop_stage 6 --expdir "${expdir}" --dumpdir "${dumpdir}" --train_set "${train_set}" \
        --valid_set "${valid_set}" --num_activation "${num_train}" --test_sets "" --noisy_test_sets "" \
        --mixed_test_sets "${sets}" --cache_test_sets true "${run_options[@]}"
fi
if begin 2 "${vocab_size} subwords"; then
    python3 -m espnet_latentasr.bin.train_subwords --text "${dumpdir}/raw/${train}/text" \
        --output_dir "${exp}/subwords" --vocab_size "${vocab_size}"
fi

data_opts=(--use_preprocessor true --token_type bpe --token_list "${exp}/subwords/tokens.txt"
    --bpemodel "${exp}/subwords/bpe.model" --input_size 0)
for part in train valid; do
    set=${train}
    [ "${part}" = train ] || set=${valid}
    data_opts+=(--"${part}_data_path_and_name_and_type" "${cache}/${set}/audio_embeds.scp,speech,kaldi_ark"
        --"${part}_data_path_and_name_and_type" "${dumpdir}/raw/${set}/text,text,text")
done
if [ -e "${cache}/${train}/audio_embeds.scp" ] && [ "${stop_stage}" -ge 3 ] && [ "${stage}" -le 4 ]; then
    data_opts+=(--input_size "$(python3 -c 'import sys, kaldiio
print(next(iter(kaldiio.load_scp(sys.argv[1]).values())).shape[1])' "${cache}/${train}/audio_embeds.scp")")
fi
if begin 3 "statistics: ${stats}"; then
    ${train_cmd} "${stats}/logdir/collect_stats.log" \
        python3 -m espnet_latentasr.bin.asr_train --collect_stats true --config "${asr_config}" "${data_opts[@]}" \
        --train_shape_file "${dumpdir}/raw/${train}/utt2num_samples" \
        --valid_shape_file "${dumpdir}/raw/${valid}/utt2num_samples" --output_dir "${stats}" --ngpu 0
fi
if begin 4 "training: ${exp}"; then
    ${cuda_cmd} --gpu 0 "${exp}/train.log" \
        python3 -m espnet_latentasr.bin.asr_train --config "${asr_config}" "${data_opts[@]}" --seed "${seed}" \
        --train_shape_file "${stats}/train/speech_shape" --train_shape_file "${stats}/train/text_shape" \
        --valid_shape_file "${stats}/valid/speech_shape" --valid_shape_file "${stats}/valid/text_shape" \
        --output_dir "${exp}" --resume true --ngpu 0 ${asr_args:+${asr_args}}
fi
if begin 5 "posteriors of ${sets}"; then
    for set in ${sets}; do
        python3 -m espnet_latentasr.bin.ctc_posteriors --asr_train_config "${exp}/config.yaml" \
            --asr_model_file "${exp}/valid.cer_ctc.best.pth" --input "${cache}/${set}_mixed/audio_embeds.scp" \
            --output_dir "${exp}/posteriors/${set}_mixed"
    done
fi
