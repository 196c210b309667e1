"""Program that stands for ``llama-server`` of one build: its help and version, its options, and a model.

A build is the version and the entries of the help; `text_of` puts both into this file's own text, which
is then a program. Like llama.cpp's parser it ends with status 1 at an option that it does not have.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VERSION = "version: 0 (unknown)"
ENTRIES: list[list[str]] = []  # replaced in the program's text

_COMMON = [
    ["-h,    --help, --usage", "print usage and exit"],
    ["--version", "show version and build info"],
    ["-m,    --model FNAME", "model path to load"],
    ["-a,    --alias STRING", "set model name aliases, comma-separated"],
    ["-c,    --ctx-size N", "size of the prompt context"],
    ["-np,   --parallel N", "number of server slots"],
    ["-kvu,  --kv-unified, -no-kvu, --no-kv-unified", "use single unified KV buffer"],
    ["-ngl,  --gpu-layers, --n-gpu-layers N", "max. number of layers to store in VRAM, or 'all'"],
    ["-dev,  --device <dev1,dev2,..>", "comma-separated list of devices to use"],
    ["-sm,   --split-mode {none,layer,row,tensor}", "how to split the model"],
    ["-ctk,  --cache-type-k TYPE", "KV cache data type for K"],
    ["-ctv,  --cache-type-v TYPE", "KV cache data type for V"],
    ["-t,    --threads N", "number of CPU threads"],
    ["-fa,   --flash-attn [on|off|auto]", "set Flash Attention use"],
    ["-fit,  --fit [on|off]", "whether to adjust unset arguments to fit in device memory"],
    ["--metrics", "enable prometheus compatible metrics endpoint"],
    ["--offline", "forces use of cache, prevents network access"],
    ["--host HOST", "ip address to listen"],
    ["--port PORT", "port to listen"],
    ["--top-k N", "top-k sampling"],
    ["--jinja, --no-jinja", "whether to use jinja template engine for chat"],
    ["--reasoning-budget N", "controls the amount of thinking allowed"],
    ["-rea,  --reasoning [on|off|auto]", "use reasoning in the chat"],
    ["--chat-template-kwargs STRING", "additional params for the json template parser"],
]
_MLOCK = [
    ["--mlock", "force system to keep model in RAM"],
    ["--mmap, --no-mmap", "whether to memory-map model"],
]
_CORS = [
    ["--cors-origins LIST", "origins that browsers may call from"],
    ["--cors-credentials, --no-cors-credentials", "whether browsers may send credentials"],
    ["-lv,   --verbosity, --log-verbosity N", "verbosity threshold"],
]
_DRAFTS = [
    ["--spec-type none,draft-simple,draft-mtp,ngram-simple,ngram-mod", "speculative decoding"],
    ["--spec-draft-n-max N", "number of tokens to draft"],
    ["--spec-ngram-simple-size-m N", "length of draft m-gram"],
    ["--draft, --draft-n, --draft-max N", "the argument has been removed. use --spec-draft-n-max"],
]
BEFORE = (
    "version: 8900 (0123abc)",
    [
        *_COMMON,
        *_MLOCK,
        ["--spec-type [none|ngram-cache|ngram-simple]", "speculative decoding without a model"],
        ["--draft, --draft-n, --draft-max N", "number of tokens to draft"],
    ],
)
"""Build before ``draft-mtp``, before the options for CORS and before ``--load-mode``."""
BETWEEN = ("version: 10000 (0456def)", [*_COMMON, *_MLOCK, *_CORS, *_DRAFTS])
"""Build with ``draft-mtp`` and the options for CORS, before ``--load-mode``."""
AFTER = (
    "version: 11549 (0789abc)",
    [*_COMMON, *_CORS, *_DRAFTS, ["-lm,   --load-mode MODE", "model loading mode"]],
)
"""Build with ``--load-mode``, without ``--mlock``."""


def text_of(build: tuple[str, list[list[str]]], interpreter: str) -> str:
    """Return the text of a program that is `build`."""
    version, entries = build
    source = Path(__file__).read_text(encoding="utf-8")
    marker = "\n_COMMON = ["
    head, _, rest = source.partition(marker)
    told = f"\nVERSION = {version!r}\nENTRIES = {json.dumps(entries)}\n"
    return f"#!{interpreter} -I\n{head}{told}{marker}{rest}"


def help_of(entries: list[list[str]]) -> str:
    """Return the help: names and hint in 40 columns, else on a line of their own."""
    lines = ["----- common params -----", ""]
    for head, description in entries:
        if len(head) > 37:
            lines += [head, " " * 40 + description]
        else:
            lines.append(head.ljust(40) + description)
        lines.append(" " * 40 + "(env: LLAMA_ARG_SOMETHING)")
    return "\n".join(lines) + "\n"


def _options() -> dict[str, bool]:
    """Return whether each option takes a value, by name."""
    found: dict[str, bool] = {}
    for head, description in ENTRIES:
        if "has been removed" in description:
            continue
        *names, last = [part.strip() for part in head.split(", ")]
        name, _, hint = last.partition(" ")
        found.update(dict.fromkeys([*(n.rstrip(",") for n in names), name], bool(hint)))
        for word in (*names, name):
            for one in word.replace(",", " ").split():
                found[one] = bool(hint)
    return found


def _parsed(argv: list[str]) -> dict[str, str]:
    options, given = _options(), {}
    words = iter(argv)
    for word in words:
        if word not in options:
            print(f"error: invalid argument: {word}", file=sys.stderr)  # noqa: T201
            sys.exit(1)
        given[word] = next(words) if options[word] else ""
    return given


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"status": "ok"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = {"index": 0, "text": "four", "message": {"role": "assistant", "content": "four"}}
        self._answer({"choices": [{**answer, "finish_reason": "stop"}], "model": "m"})

    def _answer(self, document: dict[str, object]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Print help or version, or serve."""
    if "--help" in sys.argv:
        print(help_of(ENTRIES), end="")  # noqa: T201
    elif "--version" in sys.argv:
        print(f"{VERSION}\nbuilt with a script for tests", file=sys.stderr)  # noqa: T201
    else:
        given = _parsed(sys.argv[1:])
        ThreadingHTTPServer(("127.0.0.1", int(given["--port"])), _Model).serve_forever()


if __name__ == "__main__":
    main()
