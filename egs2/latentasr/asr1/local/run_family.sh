#!/usr/bin/env bash
# Train, decode and tabulate a family of experiments over several seeds.  --help explains.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

family=""
seeds="1 2 3"
num_activation=500
asr_args=""
dev_set=valid_large
test_sets=test_large
jobs=1
expdir=exp
dumpdir=dump
normalizer=none
table_only=false
help_message="Usage: local/run_family.sh --family NAME [--option VALUE ...] [options of run.sh]

  --family          a family of conf/families.yaml; several in quotes
  --seeds           \"${seeds}\"
  --num_activation  ${num_activation}: training utterances (a system may set its own)
  --asr_args        more arguments for training, such as \"--max_epoch 3\"
  --dev_set         ${dev_set}: thresholds and fixed depths are chosen on it
  --test_sets       \"${test_sets}\"; both are sets of the mini corpus, decoded at mixed SNRs
  --jobs            ${jobs}: experiments at a time
  --normalizer      ${normalizer}: of the table, on both sides
  --table_only      ${table_only}: make the tables of what is there

All systems share the data, the encoder cache, the baseline pass and the statistics.  A rerun continues
where the last one stopped: trained models and decoded sets are left as they are.  The tables are written
to <expdir>/family_<name>.md and .csv."

run_options=()
while [ $# -gt 0 ]; do
    case "$1" in
        --help | -h) echo "${help_message}"; exit 0 ;;
        --family | --seeds | --num_activation | --asr_args | --dev_set | --test_sets | --jobs | --expdir \
            | --dumpdir | --normalizer | --table_only)
            [ $# -ge 2 ] || { echo "local/run_family.sh: $1 needs a value" >&2; exit 2; }
            printf -v "${1#--}" '%s' "$2"
            shift 2 ;;
        --*)
            [ $# -ge 2 ] || { echo "local/run_family.sh: $1 needs a value" >&2; exit 2; }
            run_options+=("$1" "$2")
            shift 2 ;;
        *) echo "local/run_family.sh: '$1' is not an option; --help lists them" >&2; exit 2 ;;
    esac
done
[ -n "${family}" ] || { echo "local/run_family.sh: --family is needed; --help explains" >&2; exit 2; }

. ./path.sh
read -r -a families <<<"${family}"
common=(--test_sets "" --noisy_test_sets "" --mixed_test_sets "${dev_set} ${test_sets}"
    --cache_test_sets true --decode_valid false --expdir "${expdir}" --dumpdir "${dumpdir}" "${run_options[@]}")
mixed=()
for set in ${test_sets}; do mixed+=("${set}_mixed"); done

# One line per experiment: tag, configuration, decoding configurations, activation size, seed
plan=$(python3 -m espnet_latentasr.bin.family plan --families conf/families.yaml --family "${families[@]}" \
    --seeds "${seeds}" --num_activation "${num_activation}" --asr_args "${asr_args}")

one() { # TAG CONFIG DECODES SIZE SEED
    local log="${expdir}/log/family.$1.log"
    mkdir -p "${expdir}/log"
    if ./run.sh --stage 11 --stop_stage 12 "${common[@]}" --asr_tag "$1" --asr_config "$2" \
        --inference_config "$3" --num_activation "$4" --seed "$5" --asr_args "${asr_args}" \
        --inference_nj 1 --inference_args "--batch_size 64" >"${log}" 2>&1; then
        echo "$(date '+%H:%M:%S') $1: done"
    else
        echo "$(date '+%H:%M:%S') $1: FAILED, see ${log}" >&2
        return 1
    fi
}

if ! "${table_only}"; then
    first=$(head -n 1 <<<"${plan}")
    mapfile -t sizes < <(cut -f4 <<<"${plan}" | sort -nu)
    for size in "${sizes[@]}"; do
        ./run.sh --stage 1 --stop_stage 9 "${common[@]}" --num_activation "${size}" \
            --asr_config "$(cut -f2 <<<"${first}")"
    done
    failed=0
    for size in "${sizes[@]}"; do
        ./run.sh --stage 10 --stop_stage 10 "${common[@]}" --num_activation "${size}" \
            --asr_config "$(cut -f2 <<<"${first}")"
        while IFS=$'\t' read -r tag config decodes own_size seed; do
            [ "${own_size}" = "${size}" ] || continue
            while [ "$(jobs -rp | wc -l)" -ge "${jobs}" ]; do wait -n || failed=$((failed + 1)); done
            one "${tag}" "${config}" "${decodes}" "${own_size}" "${seed}" </dev/null &
        done <<<"${plan}"
        while [ -n "$(jobs -rp)" ]; do wait -n || failed=$((failed + 1)); done
    done
    [ "${failed}" -eq 0 ] || { echo "${failed} experiments failed, see above" >&2; exit 1; }
fi
python3 -m espnet_latentasr.bin.family table --families conf/families.yaml --family "${families[@]}" \
    --seeds "${seeds}" --num_activation "${num_activation}" --asr_args "${asr_args}" \
    --expdir "${expdir}" --data_root "${dumpdir}/raw" --dev_set "${dev_set}_mixed" --test_set "${mixed[@]}" \
    --normalizer "${normalizer}"
