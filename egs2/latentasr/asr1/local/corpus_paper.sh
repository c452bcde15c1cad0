# shellcheck shell=bash
# What run.sh takes for --corpus paper where the command line says nothing else: the main table, and 0 dB.
# --corpus_src holds a copy of each corpus under its name (common_voice, fleurs, voxpopuli, ...); what is not
# there is read from the hub at the commits of --local_data_opts "--revisions fleurs=COMMIT,ascend=COMMIT".
# Other tables are other --test_sets, for example the twelve languages of FLEURS:
#   python -m espnet_latentasr.bin.prepare fleurs --out . --names true --parts core12
# and the first 500 utterances of a stress set are called ami_ihm_test_500.
default train_set paper_pool
default valid_set paper_dev
default test_sets "fleurs_en_us_test voxpopuli_en_test ascend_main_test"
default noisy_test_sets "fleurs_en_us_test voxpopuli_en_test"
default snrs 0
default train_snrs "" # the recordings as they are
default num_activation 500
# The order of the mixture: activation sets of 100 to 800 utterances are its prefixes.
default activation_manifest data/paper_pool/manifest.tsv
default asr_config conf/tuning/train_latent_qwen3_asr_0.6b.yaml
# Beside the mini task's, so that neither replaces the other's results.
default dumpdir dump_paper
default expdir exp_paper
