#!/usr/bin/env bash
# Learned rerankers on candidate lists: trained on lists of a training part, weights chosen on the
# development set, judged on the test set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stage=1
stop_stage=5
lists=ctc
source=""
train_set=activation_2000
dev_set=valid_large_mixed
test_set=test_large_mixed
ctc_exp=exp/ctc
ctc_opts="--gen sys --size 128 --num_paths 512"
nbest_config=conf/decode_frozen.yaml
nbest_opts="--samples 128 --beam 16 --size 128"
masked_lm=exp/lm/masked
rerankers=""
grid=""
size=128
seed=42
tag=""
nj=2
expdir=exp
dumpdir=dump
help_message="Usage: local/run_rerankers.sh [--option VALUE ...]

Needs the scored lists of local/run_oracle_gap.sh (stages 1 and 2), made with the same --ctc_opts or
--nbest_opts as here, and stage 6 of run.sh for the training part (its encoder cache).

Stages: 1 candidate lists of the training part · 2 training · 3 scores of ${dev_set} and ${test_set}
        4 weights, on the development set · 5 table, on the test set: <expdir>/oracle_gap/<tag>/report

  --stage, --stop_stage  ${stage}, ${stop_stage}
  --lists        ctc or ar
  --source       folder of local/run_oracle_gap.sh; default: <expdir>/oracle_gap/<lists>
  --train_set    ${train_set}: utterances that neither recogniser was trained on
  --dev_set      ${dev_set}
  --test_set     ${test_set}
  --ctc_exp      ${ctc_exp}; posteriors/<dev and test set> are there
  --ctc_opts     \"${ctc_opts}\", of bin.ctc_nbest
  --nbest_config ${nbest_config}
  --nbest_opts   \"${nbest_opts}\", of bin.ar_nbest
  --masked_lm    ${masked_lm}: what the masked-LM reranker starts from
  --rerankers    NAME=CONFIG of each; default: features, masked, and with ctc lists head (the acoustic one)
  --grid         what is tried on the development set; default: conf/tuning/reranker_grid[_ctc].yaml
  --size         ${size}: candidates of the longest lists
  --seed         ${seed}: of the training of rerankers
  --tag          name of the folder; default: <lists>_rerankers
  --nj ${nj}, --expdir ${expdir}, --dumpdir ${dumpdir}

Finished files are left as they are."

while [ $# -gt 0 ]; do
    case "$1" in
        --help | -h) echo "${help_message}"; exit 0 ;;
        --stage | --stop_stage | --lists | --source | --train_set | --dev_set | --test_set | --ctc_exp \
            | --ctc_opts | --nbest_config | --nbest_opts | --masked_lm | --rerankers | --grid | --size | --seed \
            | --tag | --nj | --expdir | --dumpdir)
            [ $# -ge 2 ] || { echo "local/run_rerankers.sh: $1 needs a value" >&2; exit 2; }
            printf -v "${1#--}" '%s' "$2"
            shift 2 ;;
        *) echo "local/run_rerankers.sh: '$1' is not an option; --help lists them" >&2; exit 2 ;;
    esac
done
terms=pll.ll.ngram conf=conf/tuning
case "${lists}" in
    ctc)
        grid=${grid:-${conf}/reranker_grid_ctc.yaml}
        rerankers=${rerankers:-features=${conf}/reranker_features.yaml masked=${conf}/reranker_masked_small.yaml head=${conf}/reranker_value.yaml} ;;
    ar)
        terms+=.ilm grid=${grid:-${conf}/reranker_grid.yaml}
        rerankers=${rerankers:-features=${conf}/reranker_features.yaml masked=${conf}/reranker_masked_small.yaml} ;;
    *) echo "--lists ${lists}: ctc or ar expected" >&2; exit 2 ;;
esac

. ./path.sh
. ./cmd.sh
source=${source:-${expdir}/oracle_gap/${lists}}
out="${expdir}/oracle_gap/${tag:-${lists}_rerankers}" raw="${dumpdir}/raw" cache="${expdir}/backbone/cache"
# What everything here is made of: another choice under the same --tag must not meet finished files.
made_of="${lists} ${source} ${train_set} ${dev_set} ${test_set} ${masked_lm} ${rerankers} ${seed}"
mkdir -p "${out}"
if [ -e "${out}/made_of" ] && [ "$(cat "${out}/made_of")" != "${made_of}" ]; then
    echo "local/run_rerankers.sh: ${out} is made of '$(cat "${out}/made_of")', asked for is '${made_of}';" \
        "give another --tag, or remove the folder" >&2
    exit 1
fi
echo "${made_of}" >"${out}/made_of"
for set in "${dev_set}" "${test_set}"; do
    [ -e "${source}/${set}/nbest.${terms}.jsonl" ] || {
        echo "local/run_rerankers.sh: no ${source}/${set}/nbest.${terms}.jsonl; run local/run_oracle_gap.sh" \
            "--lists ${lists} --stop_stage 2 first" >&2
        exit 1
    }
done
begin() {
    [ "${stage}" -le "$1" ] && [ "${stop_stage}" -ge "$1" ] || return 1
    echo "$(date '+%Y-%m-%dT%H:%M:%S') (run_rerankers.sh) Stage $1: $2"
}
acoustics() { # NAME SET: fills opts with what the reranker hears
    opts=()
    [ "$(config_kind "$1")" = value ] || return 0
    opts=(--embeddings "${cache}/$2/audio_embeds.scp" --posteriors "${ctc_exp}/posteriors/$2/ctc_logp.scp")
}
config_kind() { # NAME
    python3 -c 'import sys; from espnet_latentasr.rescoring.rerankers_config import load_reranker_config
print(load_reranker_config(sys.argv[1]).kind)' "$(config_of "$1")"
}
config_of() { # NAME
    local pair
    for pair in ${rerankers}; do
        [ "${pair%%=*}" != "$1" ] || echo "${pair#*=}"
    done
}
names=""
for pair in ${rerankers}; do names+=" ${pair%%=*}"; done

if begin 1 "lists (${lists}) of ${train_set}"; then
    nbest="${out}/${train_set}/nbest.jsonl"
    if [ ! -e "${nbest}" ] && [ "${lists}" = ctc ]; then
        [ -e "${ctc_exp}/posteriors/${train_set}/posteriors.json" ] \
            || ${train_cmd} "${out}/log/posteriors.log" \
                python3 -m espnet_latentasr.bin.ctc_posteriors --asr_train_config "${ctc_exp}/config.yaml" \
                --asr_model_file "${ctc_exp}/valid.cer_ctc.best.pth" \
                --input "${cache}/${train_set}/audio_embeds.scp" \
                --output_dir "${ctc_exp}/posteriors/${train_set}"
        # shellcheck disable=SC2086
        ${train_cmd} "${out}/log/nbest.log" \
            python3 -m espnet_latentasr.bin.ctc_nbest \
            --posteriors "${ctc_exp}/posteriors/${train_set}/ctc_logp.scp" \
            --token_list "${ctc_exp}/posteriors/${train_set}/tokens.txt" --ref "${raw}/${train_set}/text" \
            --out "${nbest}" ${ctc_opts}
    elif [ ! -e "${nbest}" ]; then
        shares=()
        # shellcheck disable=SC2086
        ${decode_cmd} JOB=1:"${nj}" "${out}/log/nbest.JOB.log" \
            python3 -m espnet_latentasr.bin.ar_nbest --backbone_dir "${expdir}/backbone" \
            --inference_config "${nbest_config}" --data_dir "${raw}/${train_set}" --cache_root "${cache}" \
            --out "${out}/${train_set}/share.JOB.jsonl" --num_jobs "${nj}" --job JOB ${nbest_opts}
        for n in $(seq "${nj}"); do shares+=("${out}/${train_set}/share.${n}.jsonl"); done
        python3 -m espnet_latentasr.bin.ar_nbest --merge "${shares[@]}" --out "${nbest}"
    fi
fi

if begin 2 "training:${names}"; then
    for name in ${names}; do
        [ ! -e "${out}/${name}/reranker.json" ] || continue
        acoustics "${name}" "${train_set}"
        [ "$(config_kind "${name}")" != masked ] || opts=(--model "${masked_lm}")
        ${train_cmd} --num_threads "${nj}" "${out}/log/train.${name}.log" \
            python3 -m espnet_latentasr.bin.train_reranker --nbest "${out}/${train_set}/nbest.jsonl" \
            --ref "${raw}/${train_set}/text" --config "$(config_of "${name}")" --seed "${seed}" \
            --num_threads "${nj}" --out "${out}/${name}" "${opts[@]}"
    done
fi

scored() { # SET: its file with every score
    local path="${out}/$1/nbest" name
    for name in ${names}; do path+=".${name}"; done
    echo "${path}.jsonl"
}
if begin 3 "scores:${names}"; then
    for set in "${dev_set}" "${test_set}"; do
        mkdir -p "${out}/${set}"
        from="${source}/${set}/nbest.${terms}.jsonl" to="${out}/${set}/nbest"
        for name in ${names}; do
            to+=".${name}"
            acoustics "${name}" "${set}"
            [ -e "${to}.jsonl" ] || ${train_cmd} "${out}/${set}/log/score.${name}.log" \
                python3 -m espnet_latentasr.bin.rerank_nbest --nbest "${from}" --reranker "${out}/${name}" \
                --name "${name}" --out "${to}.jsonl" "${opts[@]}"
            from="${to}.jsonl"
        done
    done
fi

if begin 4 "weights of ${grid}, on ${dev_set}"; then
    rm -f "${out}"/chosen/*.yaml # of another grid
    python3 -m espnet_latentasr.bin.choose_rescoring --nbest "$(scored "${dev_set}")" --grid "${grid}" \
        --ref "${raw}/${dev_set}/text" --out "${out}/chosen"
fi

if begin 5 "table, on ${test_set}"; then
    opts=()
    # Beside them: what the language models alone do, with their own settings of the development set.
    for rule in "${out}"/chosen/*.yaml "${source}"/chosen/*.yaml; do
        [ ! -e "${rule}" ] || opts+=(--config "${rule}")
    done
    scorers=(--scorer pll)
    for name in ${names}; do scorers+=(--scorer "${name}"); done
    python3 -m espnet_latentasr.bin.oracle_gap --nbest "$(scored "${test_set}")" \
        --ref "${raw}/${test_set}/text" "${scorers[@]}" --sizes "${size}" --taus --figures false "${opts[@]}" \
        --out "${out}/report"
fi
