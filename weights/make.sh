#!/usr/bin/env bash
# A shipped model from random weights: data, training, calibration, scores. Stopped at any moment, the same command goes on.
#   weights/make.sh SCALE DATA FOLDER [MINUTES]     with pdenet on the PATH; MINUTES of training (1500) on one core
# DATA is what examples/prepare_training_data.py reads; FOLDER gets the training folder, the model, its log and curves.
set -euo pipefail
case ${1:-} in 2 | 4 | 8) ;; *) sed -n '2,4s/^# *//p' "$0"; exit 2 ;; esac
scale=$1 data=$2 folder=$3 minutes=${4:-1500} seed=${SEED:-1}
here=$(cd "$(dirname "$0")" && pwd)
model=$folder/general-x$scale.safetensors
mixtures=16
[ "$scale" = 2 ] && mixtures=24

mkdir -p "$folder"
[ -d "$folder/unseen" ] || python "$here/../examples/prepare_training_data.py" "$data" "$folder"
pdenet train "$folder/training" --holdout quarter --validate "$folder/choosing" -o "$folder/trained-x$scale.safetensors" --scale "$scale" \
    --recipe general,psf=0.6,average=0.999 --config small,psf=any --batch 2 --seed "$seed" --threads 1 \
    --minutes "$minutes" --licence MIT --resume
pdenet calibrate "$folder/trained-x$scale.safetensors" "$folder"/training/*.mat "$folder"/training/*.tif "$folder"/training/*.hdr \
    --part lower-right --ensemble flips --mixtures "$mixtures" --learn-errors --threads 1 -o "$model" --overwrite
cp "$model" "$here/"
python "$here/score.py" "$data" "$scale"
