#!/usr/bin/env bash
# Candidate lists of a development and a test set, scored by language models; settings are chosen on the
# one and judged on the other.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stage=1
stop_stage=5
lists=ctc
dev_set=valid_large_mixed
test_set=test_large_mixed
ctc_exp=exp/ctc
ctc_opts="--gen sys --size 128 --num_paths 512"
asr_exp=""
nbest_config=conf/decode_frozen.yaml
nbest_opts="--samples 128 --beam 16 --size 128"
depth_nbest=""
masked_lm=""
causal_lm=""
lm_text=data/backbone_train/text
grid=conf/tuning/rescoring_grid.yaml
rules="conf/decode_mbr_pll.yaml"
sizes="4 8 16 32 64 128"
tag=""
nj=2
expdir=exp
dumpdir=dump
help_message="Usage: local/run_oracle_gap.sh [--option VALUE ...]

Stages: 1 candidate lists · 2 language models and their scores · 3 settings, on the development set
        4 tables and figures, on the test set: <expdir>/oracle_gap/<tag>/report/oracle_gap.md
        5 every rule of conf/ as it is, longest lists only: <expdir>/oracle_gap/<tag>/rules

  --stage, --stop_stage  ${stage}, ${stop_stage}
  --lists        ctc (of local/run_ctc.sh) or ar (of the frozen recogniser)
  --tag          name of the folder; default: that of --lists
  --dev_set      ${dev_set}
  --test_set     ${test_set}
  --ctc_exp      ${ctc_exp}; posteriors/<set> is there
  --ctc_opts     \"${ctc_opts}\", of bin.ctc_nbest
  --asr_exp      a trained model, for lists that start behind its latents (--nbest_config)
  --nbest_config ${nbest_config}
  --nbest_opts   \"${nbest_opts}\", of bin.ar_nbest
  --depth_nbest  <dir>: take in the depths that <dir>/<set>/nbest.jsonl holds
  --masked_lm    folder or hub id; default: a small one is trained on --lm_text
  --causal_lm    the same
  --lm_text      ${lm_text}: what the small language models are trained on
  --grid         ${grid}: what is tried on the development set
  --rules        \"${rules}\": further rules, as they are
  --sizes        \"${sizes}\"
  --nj ${nj}, --expdir ${expdir}, --dumpdir ${dumpdir}

Finished files are left as they are."

while [ $# -gt 0 ]; do
    case "$1" in
        --help | -h) echo "${help_message}"; exit 0 ;;
        --stage | --stop_stage | --lists | --tag | --dev_set | --test_set | --ctc_exp | --ctc_opts | --asr_exp \
            | --nbest_config | --nbest_opts | --depth_nbest | --masked_lm \
            | --causal_lm | --lm_text | --grid | --rules | --sizes | --nj \
            | --expdir | --dumpdir)
            [ $# -ge 2 ] || { echo "local/run_oracle_gap.sh: $1 needs a value" >&2; exit 2; }
            printf -v "${1#--}" '%s' "$2"
            shift 2 ;;
        *) echo "local/run_oracle_gap.sh: '$1' is not an option; --help lists them" >&2; exit 2 ;;
    esac
done
case "${lists}" in ctc | ar) ;; *) echo "--lists ${lists}: ctc or ar expected" >&2; exit 2 ;; esac

. ./path.sh
. ./cmd.sh
tag=${tag:-${lists}}
out="${expdir}/oracle_gap/${tag}" raw="${dumpdir}/raw"
terms="pll ll ngram"
[ "${lists}" = ctc ] || terms+=" ilm"
# What the lists are made of: another choice under the same --tag must not meet finished lists.
if [ "${lists}" = ctc ]; then
    made_of="${ctc_opts} $(cksum <"${ctc_exp}/posteriors/${test_set}/posteriors.json")"
else
    made_of="${asr_exp} ${nbest_config} ${nbest_opts} ${depth_nbest}"
fi
made_of="${lists} ${dev_set} ${test_set} ${made_of}"
made_of+="${masked_lm:+ scored by ${masked_lm}}${causal_lm:+ and ${causal_lm}}"
mkdir -p "${out}"
if [ -e "${out}/made_of" ] && [ "$(cat "${out}/made_of")" != "${made_of}" ]; then
    echo "local/run_oracle_gap.sh: ${out} holds lists of '$(cat "${out}/made_of")', asked for is" \
        "'${made_of}'; give another --tag, or remove the folder" >&2
    exit 1
fi
echo "${made_of}" >"${out}/made_of"
begin() {
    [ "${stage}" -le "$1" ] && [ "${stop_stage}" -ge "$1" ] || return 1
    echo "$(date '+%Y-%m-%dT%H:%M:%S') (run_oracle_gap.sh) Stage $1: $2"
}
scored() { # SET: its file with every score
    local path="${out}/$1/nbest"
    for term in ${terms}; do path+=".${term}"; done
    echo "${path}.jsonl"
}

if begin 1 "lists (${lists}) of ${dev_set} and ${test_set}"; then
    for set in "${dev_set}" "${test_set}"; do
        [ ! -e "${out}/${set}/nbest.jsonl" ] || continue
        if [ "${lists}" = ctc ]; then
            # shellcheck disable=SC2086
            ${train_cmd} "${out}/${set}/log/nbest.log" \
                python3 -m espnet_latentasr.bin.ctc_nbest --posteriors "${ctc_exp}/posteriors/${set}/ctc_logp.scp" \
                --token_list "${ctc_exp}/posteriors/${set}/tokens.txt" --ref "${raw}/${set}/text" \
                --frames "${out}/${set}/frames.csv" --out "${out}/${set}/nbest.jsonl" ${ctc_opts}
            continue
        fi
        opts=() shares=()
        [ -z "${asr_exp}" ] || opts+=(--asr_train_config "${asr_exp}/config.yaml"
            --asr_model_file "${asr_exp}/valid.ce.best.pth")
        [ -z "${depth_nbest}" ] || opts+=(--depth_nbest "${depth_nbest}/${set}/nbest.jsonl")
        # shellcheck disable=SC2086
        ${decode_cmd} JOB=1:"${nj}" "${out}/${set}/log/nbest.JOB.log" \
            python3 -m espnet_latentasr.bin.ar_nbest --backbone_dir "${expdir}/backbone" "${opts[@]}" \
            --inference_config "${nbest_config}" --data_dir "${raw}/${set}" \
            --cache_root "${expdir}/backbone/cache" --out "${out}/${set}/share.JOB.jsonl" \
            --num_jobs "${nj}" --job JOB ${nbest_opts}
        for n in $(seq "${nj}"); do shares+=("${out}/${set}/share.${n}.jsonl"); done
        python3 -m espnet_latentasr.bin.ar_nbest --merge "${shares[@]}" --out "${out}/${set}/nbest.jsonl"
    done
fi

if begin 2 "scores: ${terms}"; then
    for kind in masked causal ngram; do
        case "${kind}" in
            masked) [ -z "${masked_lm}" ] || continue ;;
            causal) [ -z "${causal_lm}" ] || continue ;;
        esac
        model="${expdir}/lm/${kind}"
        [ "${kind}" != ngram ] || model+=.arpa
        [ -e "${model}" ] || ${train_cmd} --num_threads "${nj}" "${expdir}/lm/log/${kind}.log" \
            python3 -m espnet_latentasr.bin.train_small_lm --kind "${kind}" --text "${lm_text}" \
            --out "${model}" --num_threads "${nj}"
    done
    for set in "${dev_set}" "${test_set}"; do
        from="${out}/${set}/nbest"
        for term in ${terms}; do
            case "${term}" in
                pll) opts=(--model "${masked_lm:-${expdir}/lm/masked}") ;;
                ll) opts=(--model "${causal_lm:-${expdir}/lm/causal}") ;;
                ngram) opts=(--model "${expdir}/lm/ngram.arpa") ;;
                ilm) opts=(--model "${expdir}/backbone" --data_dir "${raw}/${set}") ;;
            esac
            [ -e "${from}.${term}.jsonl" ] || ${train_cmd} "${out}/${set}/log/score.${term}.log" \
                python3 -m espnet_latentasr.bin.score_nbest --nbest "${from}.jsonl" --scorer "${term}" \
                --cache_dir "${expdir}/lm/cache" --out "${from}.${term}.jsonl" "${opts[@]}"
            from+=".${term}"
        done
    done
fi

if begin 3 "settings of ${grid}, on ${dev_set}"; then
    rm -f "${out}"/chosen/*.yaml # of another grid
    python3 -m espnet_latentasr.bin.choose_rescoring --nbest "$(scored "${dev_set}")" --grid "${grid}" \
        --ref "${raw}/${dev_set}/text" --out "${out}/chosen"
fi

if begin 4 "tables and figures, on ${test_set}"; then
    opts=()
    for rule in "${out}"/chosen/*.yaml ${rules}; do opts+=(--config "${rule}"); done
    [ ! -e "${out}/${test_set}/frames.csv" ] || opts+=(--frames "${out}/${test_set}/frames.csv")
    noise="data/${test_set}/utt2noise" # utterance, seed, SNR, ...
    if [ -e "${noise}" ]; then
        awk '{print $1, $3 == "clean" ? $3 : $3 " dB"}' "${noise}" >"${out}/${test_set}/utt2snr"
        opts+=(--utt2condition "${out}/${test_set}/utt2snr")
    fi
    # shellcheck disable=SC2086
    python3 -m espnet_latentasr.bin.oracle_gap --nbest "$(scored "${test_set}")" \
        --ref "${raw}/${test_set}/text" --scorer pll --scorer ll --sizes ${sizes} "${opts[@]}" \
        --out "${out}/report"
fi

if begin 5 "every rule as it is, on ${test_set}"; then
    opts=()
    for rule in conf/decode_mbr_pll.yaml conf/tuning/decode_mbr_*.yaml; do
        case "${rule}" in *_ilm.yaml) [ "${lists}" = ar ] || continue ;; esac
        opts+=(--config "${rule}")
    done
    python3 -m espnet_latentasr.bin.oracle_gap --nbest "$(scored "${test_set}")" \
        --ref "${raw}/${test_set}/text" --sizes "${sizes##* }" --taus --figures false "${opts[@]}" \
        --out "${out}/rules"
fi
