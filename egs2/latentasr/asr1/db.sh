# shellcheck shell=bash
# Where the corpora are; sourced by local/data.sh.  "downloads" means: fetched or made by the recipe.

# The mini task: sentences spoken by eSpeak NG, and recorded prompts from Debian's package
# asterisk-core-sounds-en (fetched without installing it).
MINI=downloads

# speechocean762: the folder that its archive unpacks to, the archive, or downloads (OpenSLR 101).
SPEECHOCEAN762=downloads

# The paper's corpora: a folder with a copy of each under its name; empty: all from the Hugging Face hub.
PAPER=

export MINI SPEECHOCEAN762 PAPER
