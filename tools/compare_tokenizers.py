#!/usr/bin/env python3
"""Compare Starling's tokenizers with Hugging Face's `tokenizers`: the same merges from a training,
and the same tokens of texts, by each other's files.

    compare_tokenizers.py --library PATH [--speed] [TEXT...]
        PATH: libstarling.so; TEXT: files to compare on as well; --speed: MB/s of both, one thread
        each, on the last of them

Needs the package tokenizers. One line a case; exit status 1 if one differs.
"""
import argparse
import ctypes
import json
import os
import random
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,  # noqa: E402
                        pre_tokenizers, trainers)

PATTERNS = ("gpt2", "llama3")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LINES = ("I'll say we've DON'T they'RE it's IT'S 'd '\u017f x'\n\r\n\n  \tspaces  and\ttabs   \n"
         "1 22 333 4444 1,234,567.89 \u00bd \u00b2 \u0663\u0664\u0665 \u2167 \U0001d7d9 3rd\r\n\r\n"
         "\u0130stanbul \u0131s\u0131 \u015eIK \u017ftra\u00dfe na\u00efve\n"
         "日本語の文章です。한국어 문장 中文字符 สวัสดี\n"
         "🙂👩\u200d👩\u200d👧 🇩🇪e\u0301 o\u0308\u0323 \ufeff\u200d\n"
         "if (x != 0) { y[i] += ->f(a, b); } // ---\n"
         "\u00a0\u2003\u3000\u0085\u2028x\x0b\x0c\x1c\x1f\n")
CHARACTERS = ("abcXYZ sstTdDmMlLvVrReE''''   \t\n\r\n\n0123456789\u017f\u0130\u0131\u00a0\u2003"
              "\u3000\u0085 éüß日本語ひ한국🙂👩\u200d👧\u0301\u0308\u0663\u096b\u2167\u00bd"
              "\u00b2!?.,-_()[]{}#@\u2028\x1c\x1f\x0b\x0cñ\ufb06\U0001d518\U0001d7d9\ufeff")


def hard_text(seed, characters):
    """All that is hard to cut into pieces: lines by hand, then characters by chance."""
    draw = random.Random(seed)
    return LINES + "".join(draw.choice(CHARACTERS) for _ in range(characters))


def train(pattern, texts, size, specials, prefix=False):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    if pattern == "llama3":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def encode(tokenizer, text, specials=True):
    tokenizer.encode_special_tokens = not specials
    return tokenizer.encode(text, add_special_tokens=False).ids


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_int64), ("pattern", ctypes.c_int),
                ("specials", ctypes.POINTER(ctypes.c_char_p)), ("special_count", ctypes.c_int),
                ("least_count", ctypes.c_int64)]


class Starling:
    """A tokenizer of Starling's, by its C functions."""
    library = None

    def __init__(self, pointer):
        self.pointer = pointer

    @classmethod
    def call(cls, function, *arguments):
        if getattr(cls.library, function)(*arguments) != 0:
            cls.library.sl_error.restype = ctypes.c_char_p
            sys.exit(f"{function}: {cls.library.sl_error().decode()}")

    @classmethod
    def open(cls, path):
        pointer = ctypes.c_void_p()
        cls.call("sl_tokenizer_open", path.encode(), ctypes.byref(pointer))
        return cls(pointer)

    @classmethod
    def train(cls, pattern, texts, size, specials):
        blocks = [text.encode() for text in texts]
        names = (ctypes.c_char_p * (len(specials) + 1))(*[s.encode() for s in specials], None)
        options = Options(size, PATTERNS.index(pattern), names, len(specials), 0)
        pointer = ctypes.c_void_p()
        cls.call("sl_tokenizer_train", ctypes.byref(options),
                 (ctypes.c_char_p * len(blocks))(*blocks),
                 (ctypes.c_size_t * len(blocks))(*map(len, blocks)), len(blocks),
                 ctypes.byref(pointer))
        return cls(pointer)

    def save(self, path):
        self.call("sl_tokenizer_save", self.pointer, path.encode())

    def encode_bytes(self, text, specials=True):
        ids, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_int64()
        self.call("sl_tokenizer_encode", self.pointer, text, ctypes.c_size_t(len(text)),
                  ctypes.c_bool(specials), ctypes.byref(ids), ctypes.byref(count))
        return ids, count.value

    def encode(self, text, specials=True):
        ids, count = self.encode_bytes(text.encode(), specials)
        return ids[:count]

    def decode(self, ids):
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.call("sl_tokenizer_decode", self.pointer, (ctypes.c_int32 * len(ids))(*ids),
                  ctypes.c_int64(len(ids)), ctypes.byref(text), ctypes.byref(size))
        return ctypes.string_at(text.value, size.value)


def vocabulary(path):
    model = json.load(open(path))["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


failed = False


def report(name, equal, detail=""):
    global failed
    failed |= not equal
    print(("ok " if equal else "differs ") + name + detail, flush=True)


def compare_training(pattern, texts, size, specials, folder, name):
    mine, theirs = os.path.join(folder, "mine.json"), os.path.join(folder, "theirs.json")
    peer = train(pattern, texts, size, specials)
    ours = Starling.train(pattern, texts, size, specials)
    ours.save(mine)
    peer.save(theirs)
    report(f"{name}, {pattern}: the vocabulary and the merges",
           vocabulary(mine) == vocabulary(theirs), f", {peer.get_vocab_size()} tokens")
    crossed, reopened = Tokenizer.from_file(mine), Starling.open(theirs)
    samples = texts + [hard_text(7, 5000), "", " ", "\n", "<|endoftext|> hi<|ü x|>  <|endoftext|>"]
    equal = True
    for text in samples:
        for asked in (True, False):
            wanted = encode(peer, text, asked)
            equal &= ours.encode(text, asked) == reopened.encode(text, asked) == wanted
            equal &= encode(crossed, text, asked) == wanted
        equal &= ours.decode(wanted) == text.encode()
    report(f"{name}, {pattern}: tokens", equal, f" of {len(samples)} texts")


def compare_added(pattern, ignore_merges, folder):
    """Added tokens with all their options, and a blank before the text."""
    path = os.path.join(folder, "added.json")
    tokenizer = train("gpt2", [hard_text(3, 20000)], 600, ["<s>"], prefix=True)
    if pattern == "llama3":
        tokenizer.pre_tokenizer = train(pattern, [], 256, []).pre_tokenizer
    tokenizer.add_tokens([
        AddedToken("<mask>", lstrip=True, special=True), AddedToken("<both>", lstrip=True,
                                                                    rstrip=True),
        AddedToken("<r>", rstrip=True, special=True), AddedToken("foo", normalized=True),
        AddedToken("foobar", normalized=True), AddedToken("ab cd")])
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = ignore_merges
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.save(path)
    ours = Starling.open(path)
    parts = ["<s>", "<mask>", "<r>", "foo", "foobar", "<both>", "ab cd", " ", "  ", "\n", "\u3000",
             "\u00a0", "x", " the", "The", "1234", "'s", "é", "<", "<s", "\r\n"]
    draw, equal = random.Random(5), True
    for _ in range(1000):
        text = "".join(draw.choice(parts) for _ in range(draw.randrange(9)))
        equal &= all(ours.encode(text, s) == encode(tokenizer, text, s) for s in (True, False))
    report(f"added tokens, {pattern}, ignore_merges {ignore_merges}", equal)


def compare_characters(pattern, folder):
    """Every character of Unicode in several places of a text."""
    path = os.path.join(folder, "characters.json")
    tokenizer = train(pattern, [hard_text(1, 3000)], 300, [])
    tokenizer.save(path)
    ours, equal = Starling.open(path), True
    # the planes that have characters, and a part of each that has none
    for base in [*range(0, 0x34000, 1024), *range(0xE0000, 0x110000, 0x8000)]:
        text = "".join(f"a{c}1 {c}{c}. {c}" for c in map(chr, range(base, base + 1024))
                       if not 0xD800 <= ord(c) < 0xE000)
        equal &= ours.encode(text) == encode(tokenizer, text)
    report(f"every character, {pattern}", equal)


def speed(text, folder):
    path = os.path.join(folder, "speed.json")
    for pattern in PATTERNS:
        train(pattern, [text], 10000, []).save(path)
        peer, ours, block = Tokenizer.from_file(path), Starling.open(path), text.encode()
        times = {"tokenizers": [], "Starling": []}
        for _ in range(3):
            begin = time.perf_counter()
            peer.encode(text)
            middle = time.perf_counter()
            ours.encode_bytes(block)
            times["tokenizers"].append(middle - begin)
            times["Starling"].append(time.perf_counter() - middle)
        print(f"{pattern}: " + ", ".join(f"{name} {len(block) / min(t) / 1e6:.1f} MB/s"
                                         for name, t in times.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("text", nargs="*")
    arguments = parser.parse_args()
    Starling.library = ctypes.CDLL(arguments.library)
    texts = [open(path, newline="").read() for path in arguments.text]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.speed:
            speed(texts[-1], folder)
            return
        for pattern in PATTERNS:
            for name, text in [("hard text", hard_text(1, 20000))] + list(zip(arguments.text,
                                                                              texts)):
                for specials in ([], ["<|endoftext|>", "<|ü x|>"])[name != "hard text":]:
                    compare_training(pattern, [text, hard_text(2, 2000)], 1500, specials, folder,
                                     os.path.basename(name))
            for ignore_merges in (False, True):
                compare_added(pattern, ignore_merges, folder)
            compare_characters(pattern, folder)
    sys.exit(failed)


if __name__ == "__main__":
    main()
