#!/usr/bin/env bash
# Precompiles a jobs file on eight nodes, with Slurm, and joins the parts:
#
#     parts=$(sbatch --parsable --export=ALL,JOBS=jobs.json,OUT=kernels.pack examples/farm/slurm.sh)
#     sbatch --dependency=afterok:$parts --wrap "sparsekiln pack merge kernels.pack.[0-7] -o kernels.pack"
#
# A shared level of the cache (SPARSEKILN_REMOTE, docs/cache.md) lets a node that starts again go on where it was.
#SBATCH --array=0-7
#SBATCH --cpus-per-task=8
set -euo pipefail
exec sparsekiln precompile "$JOBS" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" -o "$OUT.$SLURM_ARRAY_TASK_ID"
