#!/bin/bash
# Prism on two nodes of 8 GPUs: `sbatch recipes/slurm/two_nodes.sh recipes/qwen3-4b-base/prism.yaml [--field value ...]`
# from the repository's folder, with the environment active. Not yet run on a cluster.
#SBATCH --job-name=prism
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --output=runs/slurm-%j.log

set -euo pipefail
recipe=${1:?usage: sbatch recipes/slurm/two_nodes.sh RECIPE [--field value ...]}
shift

gpus_per_node=8
export MAIN_ADDRESS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MAIN_PORT=$((20000 + SLURM_JOB_ID % 20000))  # two jobs on a node do not meet
export OMP_NUM_THREADS=8

# SLURM_NODEID is known on the node alone, so the command is put together there.
srun --kill-on-bad-exit=1 bash -c 'exec accelerate launch \
    --config_file accelerate_configs/zero3_multinode.yaml \
    --num_machines "$SLURM_NNODES" --num_processes $(( SLURM_NNODES * '"$gpus_per_node"' )) \
    --machine_rank "$SLURM_NODEID" --main_process_ip "$MAIN_ADDRESS" --main_process_port "$MAIN_PORT" \
    recipes/prism.py --config "$@"' _ "$recipe" "$@"
