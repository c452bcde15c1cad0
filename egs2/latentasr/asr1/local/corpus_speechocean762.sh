# shellcheck shell=bash
# What run.sh takes for --corpus speechocean762 where the command line says nothing else.
default train_set train
default valid_set dev
default test_sets test
default noisy_test_sets ""
default train_snrs "" # the recordings as they are
# Beside the mini task's, so that neither replaces the other's results.
default dumpdir dump_speechocean762
default expdir exp_speechocean762
