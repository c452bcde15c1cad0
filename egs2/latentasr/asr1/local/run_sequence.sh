#!/usr/bin/env bash
# Sequence-level training (MWER, RAFT) of the CTC model of local/run_ctc.sh, from an early and from a
# converged checkpoint: is there a reward to follow, and does following it help?
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stage=1
stop_stage=5
methods="mwer_nbest raft_oracle raft_reference"
checkpoints="early converged"
seeds="1 2 3"
ctc_tag=ctc
early_epochs=3
early_max_nll=4
train_set=backbone_train
num_train=8345
num_sequence=2000
valid_set=valid
test_set=test_large
sequence_args=""
tag=default
jobs=1
expdir=exp
dumpdir=dump
normalizer=none
help_message="Usage: local/run_sequence.sh [--option VALUE ...] [options of local/run_ctc.sh]

Stages: 1 checkpoints (local/run_ctc.sh) and their texts of --test_set
        2 oracle gap of training utterances, before anything is trained: <out>/training_gap.csv
        3 every method from every checkpoint with every seed, and their texts of --test_set
        4 tables, trajectories, figures: <out>/report/sequence.md
        5 variance of three gradient estimators at each checkpoint: <out>/<checkpoint>/variance
<out> is <expdir>/sequence/<tag>

  --stage, --stop_stage  ${stage}, ${stop_stage}
  --methods        \"${methods}\": of conf/tuning/<method>.yaml
  --checkpoints    \"${checkpoints}\"
  --seeds          \"${seeds}\"
  --ctc_tag        ${ctc_tag}: the converged model, <expdir>/<ctc_tag>; the early one is <ctc_tag>_early
  --early_epochs   ${early_epochs}: epochs of the early checkpoint
  --early_max_nll  ${early_max_nll}: nats per reference token it may have (guards.max_nll)
  --train_set      ${train_set}, --num_train ${num_train}: what the CTC model was trained on
  --num_sequence   ${num_sequence} of these utterances, evenly spread over the sorted ids
  --valid_set      ${valid_set}: trajectories
  --test_set       ${test_set}, at mixed SNRs: judged after the last epoch
  --sequence_args  more arguments of bin.sequence_train, such as \"--max_epoch 3\"
  --tag ${tag}, --jobs ${jobs} (trainings at a time), --normalizer ${normalizer}
  --expdir ${expdir}, --dumpdir ${dumpdir}

Finished work is left as it is; a killed training continues."

ctc_options=()
while [ $# -gt 0 ]; do
    case "$1" in
        --help | -h) echo "${help_message}"; exit 0 ;;
        --stage | --stop_stage | --methods | --checkpoints | --seeds | --ctc_tag | --early_epochs | --early_max_nll \
            | --train_set | --num_train | --num_sequence | --valid_set | --test_set | --sequence_args | --tag \
            | --jobs | --expdir | --dumpdir | --normalizer)
            [ $# -ge 2 ] || { echo "local/run_sequence.sh: $1 needs a value" >&2; exit 2; }
            printf -v "${1#--}" '%s' "$2"
            shift 2 ;;
        --*)
            [ $# -ge 2 ] || { echo "local/run_sequence.sh: $1 needs a value" >&2; exit 2; }
            ctc_options+=("$1" "$2")
            shift 2 ;;
        *) echo "local/run_sequence.sh: '$1' is not an option; --help lists them" >&2; exit 2 ;;
    esac
done
for checkpoint in ${checkpoints}; do
    case "${checkpoint}" in early | converged) ;; *)
        echo "--checkpoints ${checkpoint}: early or converged expected" >&2; exit 2 ;;
    esac
done
for method in ${methods}; do
    [ -e "conf/tuning/${method}.yaml" ] || { echo "--methods ${method}: no conf/tuning/${method}.yaml" >&2; exit 2; }
done

. ./path.sh
. ./cmd.sh
out="${expdir}/sequence/${tag}" ctc="${expdir}/${ctc_tag}" stats="${expdir}/${ctc_tag}_stats"
early="${ctc}_early" cache="${expdir}/backbone/cache" raw="${dumpdir}/raw" subset="${out}/train"
train="activation_${num_train}" valid="${valid_set}_noisy" test="${test_set}_mixed"
begin() {
    [ "${stage}" -le "$1" ] && [ "${stop_stage}" -ge "$1" ] || return 1
    echo "$(date '+%Y-%m-%dT%H:%M:%S') (run_sequence.sh) Stage $1: $2"
}
model_of() { # CHECKPOINT: its parameters
    [ "$1" = early ] && echo "${early}/${early_epochs}epoch.pth" || echo "${ctc}/valid.cer_ctc.best.pth"
}
config_of() { # CHECKPOINT
    [ "$1" = early ] && echo "${early}/config.yaml" || echo "${ctc}/config.yaml"
}
greedy() { # CONFIG MODEL FOLDER, ...: texts of the test set, all models in one process
    local work=()
    while [ $# -gt 0 ]; do
        [ -e "$3/decode/${test}/text" ] || work+=(--job "$1" "$2" "$3/decode/${test}")
        shift 3
    done
    [ "${#work[@]}" -eq 0 ] || python3 -m espnet_latentasr.bin.ctc_greedy \
        --input "${cache}/${test}/audio_embeds.scp" "${work[@]}"
}

# What a folder's trainings are made of: other choices under the same --tag must not meet finished ones.
made_of="${ctc_tag} ${early_epochs} ${train_set} ${num_train} ${num_sequence} ${valid} ${normalizer} ${sequence_args}"
mkdir -p "${out}"
if [ -e "${out}/made_of" ] && [ "$(cat "${out}/made_of")" != "${made_of}" ]; then
    echo "local/run_sequence.sh: ${out} holds trainings of '$(cat "${out}/made_of")', asked for is '${made_of}';" \
        "give another --tag, or remove the folder" >&2
    exit 1
fi
echo "${made_of}" >"${out}/made_of"

if begin 1 "checkpoints ${checkpoints}"; then
    run_ctc() { # OPTIONS
        local/run_ctc.sh --train_set "${train_set}" --num_train "${num_train}" --valid_set "${valid_set}" \
            --sets "${test_set}" --expdir "${expdir}" --dumpdir "${dumpdir}" "${ctc_options[@]}" "$@"
    }
    [ -e "$(model_of converged)" ] || run_ctc --stage 1 --stop_stage 4 --asr_tag "${ctc_tag}"
    case " ${checkpoints} " in *" early "*)
        if [ ! -e "$(model_of early)" ]; then
            # The same subwords, statistics, seed and schedule: the converged model's own first epochs.
            mkdir -p "${early}"
            [ -e "${early}/subwords" ] || cp -r "${ctc}/subwords" "${early}/subwords"
            [ -e "${early}_stats" ] || cp -r "${stats}" "${early}_stats"
            run_ctc --stage 4 --stop_stage 4 --asr_tag "${ctc_tag}_early" --asr_args "--max_epoch ${early_epochs}"
        fi ;;
    esac
    work=()
    for checkpoint in ${checkpoints}; do
        work+=("$(config_of "${checkpoint}")" "$(model_of "${checkpoint}")" "${out}/${checkpoint}")
    done
    greedy "${work[@]}"
fi

if begin 2 "oracle gap of ${num_sequence} training utterances"; then
    if [ ! -e "${subset}/text" ]; then
        mkdir -p "${subset}"
        count=$(wc -l <"${stats}/train/speech_shape")
        if [ "${count}" -lt "${num_sequence}" ]; then
            echo "--num_sequence ${num_sequence}: the CTC model was trained on ${count} utterances" >&2
            exit 2
        fi
        LC_ALL=C sort "${stats}/train/speech_shape" | awk -v n="${count}" -v k="${num_sequence}" \
            'int(NR * k / n) > int((NR - 1) * k / n) {print $1}' >"${subset}/ids"
        for pair in "${stats}/train/speech_shape speech_shape" "${cache}/${train}/audio_embeds.scp feats.scp" \
            "${raw}/${train}/text text.part"; do
            read -r from to <<<"${pair}"
            awk 'NR == FNR {keep[$1]; next} $1 in keep' "${subset}/ids" "${from}" >"${subset}/${to}"
            if [ "$(wc -l <"${subset}/${to}")" -ne "${num_sequence}" ]; then
                echo "${from}: $(wc -l <"${subset}/${to}") of the ${num_sequence} utterances found" >&2
                exit 1
            fi
        done
        mv "${subset}/text.part" "${subset}/text"
    fi
    places=()
    for checkpoint in ${checkpoints}; do
        place="${out}/${checkpoint}/train_logp"
        [ -e "${place}/posteriors.json" ] || python3 -m espnet_latentasr.bin.ctc_posteriors \
            --asr_train_config "$(config_of "${checkpoint}")" --asr_model_file "$(model_of "${checkpoint}")" \
            --input "${subset}/feats.scp" --output_dir "${place}"
        places+=("${checkpoint}=${place}")
    done
    python3 -m espnet_latentasr.bin.sequence_gap --posteriors "${places[@]}" --ref "${subset}/text" \
        --normalizer "${normalizer}" --out "${out}/training_gap.csv"
fi

one() { # CHECKPOINT METHOD SEED
    local run="${out}/$1_$2_seed$3" data=() limits=()
    [ ! -e "${run}/trained" ] || return 0
    for part in train valid; do
        if [ "${part}" = train ]; then shapes="${subset}" feats="${subset}/feats.scp" text="${subset}/text"
        else shapes="${stats}/valid" feats="${cache}/${valid}/audio_embeds.scp" text="${raw}/${valid}/text"; fi
        data+=(--"${part}_data_path_and_name_and_type" "${feats},speech,kaldi_ark"
            --"${part}_data_path_and_name_and_type" "${text},text,text"
            --"${part}_shape_file" "${shapes}/speech_shape")
    done
    [ "$1" != early ] || limits=(--sequence_conf "guards.max_nll=${early_max_nll}")
    # shellcheck disable=SC2086
    ${cuda_cmd} --gpu 0 "${run}/train.log" \
        python3 -m espnet_latentasr.bin.sequence_train --config "conf/tuning/$2.yaml" \
        --init_config "$(config_of "$1")" --init_param "$(model_of "$1")" "${data[@]}" "${limits[@]}" \
        --sequence_conf "normalizer=${normalizer}" --output_dir "${run}" --seed "$3" --resume true --ngpu 0 \
        ${sequence_args} && touch "${run}/trained" && echo "$(date '+%H:%M:%S') $1 $2 seed $3: done" && return 0
    echo "$(date '+%H:%M:%S') $1 $2 seed $3: FAILED, see ${run}/train.log" >&2
    return 1
}
if begin 3 "methods ${methods} x checkpoints ${checkpoints} x seeds ${seeds}"; then
    work=() runs=() missing=()
    for checkpoint in ${checkpoints}; do
        for method in ${methods}; do
            for seed in ${seeds}; do
                run="${out}/${checkpoint}_${method}_seed${seed}"
                runs+=("${run}") work+=("${run}/config.yaml" "${run}/latest.pth" "${run}")
                while [ "$(jobs -rp | wc -l)" -ge "${jobs}" ]; do wait -n || true; done
                one "${checkpoint}" "${method}" "${seed}" </dev/null &
            done
        done
    done
    wait
    for run in "${runs[@]}"; do [ -e "${run}/trained" ] || missing+=("${run##*/}"); done
    [ "${#missing[@]}" -eq 0 ] || { echo "not trained, see above: ${missing[*]}" >&2; exit 1; }
    greedy "${work[@]}"
fi

if begin 4 "tables and figures: ${out}/report"; then
    control=()
    case " ${methods} " in *" raft_reference "*) control=(--control raft_reference) ;; esac
    # shellcheck disable=SC2086
    python3 -m espnet_latentasr.bin.sequence_report "${control[@]}" --root "${out}" --checkpoints ${checkpoints} \
        --methods ${methods} --seeds ${seeds} --test_set "${test}" --ref "${raw}/${test}/text" \
        --normalizer "${normalizer}" --gaps "${out}/training_gap.csv" --out "${out}/report"
fi

if begin 5 "variance of three gradient estimators"; then
    for checkpoint in ${checkpoints}; do
        place="${out}/${checkpoint}/variance"
        [ -e "${place}/logits/ratios.md" ] || python3 -m espnet_latentasr.bin.ctc_variance \
            --posteriors "${out}/${checkpoint}/train_logp" --ref "${subset}/text" --normalizer "${normalizer}" \
            --out "${place}/logits"
        [ -e "${place}/projection/ratios.md" ] || python3 -m espnet_latentasr.bin.ctc_variance \
            --asr_train_config "$(config_of "${checkpoint}")" --asr_model_file "$(model_of "${checkpoint}")" \
            --input "${subset}/feats.scp" --ref "${subset}/text" --normalizer "${normalizer}" --limit 250 \
            --out "${place}/projection"
    done
fi
