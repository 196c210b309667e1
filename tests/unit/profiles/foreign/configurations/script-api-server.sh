#!/bin/bash
NCCL_P2P_DISABLE=1 OMP_NUM_THREADS=8 /opt/vllm/bin/python -m vllm.entrypoints.openai.api_server \
    --model ./model/checkpoint-5500_merged \
    --served-model-name pacer \
    --host 0.0.0.0 \
    --port 8001 \
    --dtype float16 \
    --tensor_parallel_size 2 \
    --max_model_len 8k \
    --kv-cache-dtype fp8 \
    --enforce-eager --no-enable-prefix-caching
