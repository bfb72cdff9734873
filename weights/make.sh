#!/usr/bin/env bash
# A shipped model: data, training, calibration, scores. Stopped at any moment, the same command goes on.
#   weights/make.sh SCALE DATA FOLDER [MINUTES]     with pdenet on the PATH; MINUTES of training (1500) on one core
# DATA is what examples/prepare_training_data.py reads; FOLDER gets the training folder, the model, its log and curves.
# INIT=MODEL starts from the weights of a model instead of random ones; CONFIG, LR and SEED change the training.
set -euo pipefail
case ${1:-} in 2 | 4 | 8) ;; *) sed -n '2,5s/^# *//p' "$0"; exit 2 ;; esac
scale=$1 data=$2 folder=$3 minutes=${4:-1500}
here=$(cd "$(dirname "$0")" && pwd)
model=$folder/general-x$scale.safetensors
mixtures=16
[ "$scale" = 2 ] && mixtures=24

mkdir -p "$folder"
[ -d "$folder/calibrating-x$scale" ] || python "$here/../examples/prepare_training_data.py" "$data" "$folder"
pdenet train "$folder/training" --holdout quarter --validate "$folder/choosing" -o "$folder/trained-x$scale.safetensors" \
    --scale "$scale" --recipe general,psf=0.5,average=0.999,lr="${LR:-2e-3}" --config "${CONFIG:-small,psf=any,width=64,head=32}" \
    ${INIT:+--init "$INIT"} --batch 2 --seed "${SEED:-1}" --threads 1 --minutes "$minutes" --licence MIT --resume
pdenet calibrate "$folder/trained-x$scale.safetensors" "$folder/calibrating-x$scale"/*.{mat,tif,hdr} \
    --ensemble flips --mixtures "$mixtures" --learn-errors --threads 1 -o "$model" --overwrite
cp "$model" "$here/"
python "$here/score.py" "$data" "general-x$scale"
