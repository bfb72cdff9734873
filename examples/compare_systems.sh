#!/usr/bin/env bash
# Every system on the same cubes for the same minutes, then one table under one protocol:
#
#     examples/compare_systems.sh FOLDER CUBE...            # e.g. compared /data/cave/*.mat
#     MINUTES=10 SCALE=4 SIZE=paper BANDS=31 SYSTEMS="pdenet mcnet" examples/compare_systems.sh ...
#     LIMIT="--steps 3 --batch 1 --patch 32" examples/compare_systems.sh ...    # only to see that all of it runs
#
# Each is trained at its published size on all but the lower right quarter of every cube, and scored on that quarter
# beside bicubic. SSPSR and 3DGAN are made for one band count: BANDS is that of the cubes. Run again, it goes on
# where it stopped.
set -euo pipefail

folder=${1:?give a folder for the models, then the cubes}
shift
mkdir -p "$folder"
read -ra limit <<<"${LIMIT:---minutes ${MINUTES:-10}}"
read -ra systems <<<"${SYSTEMS:-3dfcnn 3dgan sspsr mcnet ercsr template nas pdenet}"

models=()
for system in "${systems[@]}"; do
    config=${SIZE:-paper}
    case $system in sspsr | 3dgan) config+=,bands=${BANDS:-31} ;; esac
    model=$folder/$system.safetensors
    echo "== $system"
    pdenet train "$@" -o "$model" --network "$system" --config "$config" --scale "${SCALE:-4}" "${limit[@]}" --resume
    models+=(--model "$model")
done
pdenet evaluate "${models[@]}" "$@" --part lower-right-alone --mixtures 0 --html "$folder/compared.html" --overwrite
