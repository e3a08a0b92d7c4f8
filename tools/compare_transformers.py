#!/usr/bin/env python3
"""Models of Hugging Face's transformers with random weights, against the program
tests/examples/gpt_folder: the same logits from the same folder, and from the folder that the
program writes. Needs torch and transformers.

    tools/compare_transformers.py --program build/tests/examples/gpt_folder [--large]
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

TOLERANCE = 1e-4  # of the greatest logit


def tiny_gpt2(**more):
    return GPT2Config(vocab_size=61, n_positions=24, n_embd=32, n_layer=2, n_head=4, **more)


def tiny_llama(**more):
    return LlamaConfig(vocab_size=61, max_position_embeddings=64, hidden_size=32,
                       intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, rms_norm_eps=1e-5, **more)


# name, configuration, type of the weights, options of save_pretrained, noise on the weights
TINY = [
    ("GPT-2", tiny_gpt2(), torch.float32, {}, 0.1),
    ("GPT-2 with a head of its own", tiny_gpt2(tie_word_embeddings=False), torch.float32, {}, 0.1),
    ("Llama, grouped queries, BF16, several files", tiny_llama(), torch.bfloat16,
     {"max_shard_size": "20KB"}, 0.1),
    ("Llama, tied, F16", tiny_llama(tie_word_embeddings=True), torch.float16, {}, 0.1),
]
LARGE = [("GPT-2 of 124M parameters", GPT2Config(), torch.float32, {}, 0.02)]


def random_model(config, dtype, noise):
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return model.to(dtype)


def logits_of(folder, tokens):
    """In f32. A model that was converted to BF16 would have rotary angles of BF16, too."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor(tokens[None].astype("int64"))).logits[0].numpy()


def difference(one, other):
    return float(numpy.abs(one - other).max() / numpy.abs(one).max())


def compare(program, work, config, dtype, options, noise):
    """The differences of the program's logits from the model's, and of the saved model's from the
    program's, as parts of the greatest one; number of files of the model."""
    source, saved = os.path.join(work, "source"), os.path.join(work, "saved/")
    random_model(config, dtype, noise).save_pretrained(source, **options)
    files = sum(name.endswith(".safetensors") for name in os.listdir(source))
    length = min(getattr(config, "n_positions", 64), 64)
    tokens = numpy.random.default_rng(1).integers(config.vocab_size, size=length).astype("int32")
    tokens.tofile(os.path.join(work, "tokens"))
    subprocess.run([program, source, os.path.join(work, "tokens"), os.path.join(work, "logits"),
                    saved], check=True)
    ours = numpy.fromfile(os.path.join(work, "logits"), "float32").reshape(length, -1)
    return difference(logits_of(source, tokens), ours), \
        difference(ours, logits_of(saved, tokens)), files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--large", action="store_true", help="a model of GPT-2's size instead")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(1)
    torch.set_num_threads(2)
    failed = False
    for name, config, dtype, how, noise in LARGE if options.large else TINY:
        with tempfile.TemporaryDirectory() as work:
            there, back, files = compare(options.program, work, config, dtype, how, noise)
        right = there < TOLERANCE and back < TOLERANCE and (files > 1) == bool(how)
        failed |= not right
        print(f"{'ok' if right else 'WRONG'} - {name}: logits differ by {there:.1e} of the "
              f"greatest one, those of the saved model by {back:.1e}; {files} files", flush=True)
    sys.exit(failed)


main()
