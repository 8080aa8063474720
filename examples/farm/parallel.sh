#!/usr/bin/env bash
# Precompiles a jobs file in N parts with GNU parallel, each with a store of its own, and joins them.
#
#     examples/farm/parallel.sh jobs.json kernels.pack 8
set -euo pipefail
jobs=$1 out=$2 parts=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 0 $((parts - 1)) | parallel --halt now,fail=1 --quote \
  env SPARSEKILN_CACHE_DIR="$work/cache-{}" sparsekiln precompile "$jobs" --shard "{}/$parts" -o "$work/{}.pack"
sparsekiln pack merge "$work"/*.pack -o "$out"
