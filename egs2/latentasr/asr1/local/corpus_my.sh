# shellcheck shell=bash disable=SC2034,SC2154 # run.sh, which reads this file, has the variables
# What run.sh takes for --corpus my: Kaldi directories of any place, which stage 1 brings to data/<name>.
for name in train_dir valid_dir test_dirs; do
    [ -n "${!name:-}" ] || usage_error "--corpus my: --${name} is empty; a Kaldi directory expected"
done
for name in train_set valid_set test_sets corpus_src; do
    [[ "${given}" != *" ${name} "* ]] \
        || usage_error "--${name}: --corpus my names each set by its folder, and reads no other copy"
done
corpus_src="${train_dir} ${valid_dir} ${test_dirs}"
test_dirs="" # they are read in stage 1 like the others
train_set=$(basename "${train_dir}")
valid_set=$(basename "${valid_dir}")
test_sets="" names=""
for name in ${corpus_src}; do names+="$(basename "${name}")"$'\n'; done
name=$(LC_ALL=C sort <<<"${names%$'\n'}" | uniq -d | head -n 1)
[ -z "${name}" ] || usage_error "--corpus my: two folders are named '${name}'; rename one"
test_sets=$(tail -n +3 <<<"${names%$'\n'}" | tr '\n' ' ')
test_sets=${test_sets% }
# Of directories without utt2lang; the default of --lang is no statement about them.
[[ "${given}" != *" lang "* ]] || local_data_opts+=" --lang ${lang}"
default noisy_test_sets ""
default train_snrs "" # the recordings as they are
# Beside the mini task's, so that neither replaces the other's results.
default dumpdir dump_my
default expdir exp_my
