#!/bin/bash
export model=meta-llama/Llama-3.1-8B-Instruct
export port=30000
export tp=2
sudo docker run --gpus all \
    --shm-size 32g \
    -p 30000:30000 \
    -v ~/.cache/huggingface:/root/.cache/huggingface \
    --env "HF_TOKEN=${TOKEN}" \
    --ipc=host \
    lmsysorg/sglang:latest \
    python3 -m sglang.launch_server --model-path ${model} --host 0.0.0.0 --port ${port} --tp ${tp} \
    --trust-remote-code --attention-backend flashinfer --disable-cuda-graph --disable-radix-cache \
    --max-running-requests 64 --mem-fraction-static 0.7 --schedule-policy fcfs
