#!/bin/sh
# The campaign on an AMD GPU, in one command: the proof, then the figures, then what became of the predictions. Nobody
# has run it on one yet (docs/silicon.md says what is known, and asks for the report).
#
#   bench/campaign/rocm.sh [BUILD] [MODEL] [RESULTS]
#       BUILD    where make put its products (build)
#       MODEL    a gpt-oss-20b: a folder or a GGUF (a synthetic one, written to /tmp/gossamer-20b if it is not there yet)
#       RESULTS  a folder for results.json, report.md and what the commands said (build/rocm-results)
#
# QUICK=1 runs all sections in seconds, with any model. Exit code 0: the proof and all commands passed; 1: something
# failed; 2: there is no HIP here, or something is missing. The predictions are in rocm-predictions.json.
set -u
cd "$(dirname "$0")/../.." || exit 2
. bench/campaign/device.sh
run_campaign rocm-predictions.json build/rocm-results "$@"
