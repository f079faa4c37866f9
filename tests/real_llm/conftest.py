"""A real language model, served here, and the service in front of it."""

import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.api.serving import Service, serving, settings_for

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def model_python() -> Path:
    """The Python that has the model's wheels: `make test-real-llm` makes it and says which."""
    named = os.environ.get("REAL_LLM_PYTHON")
    if named is None:
        pytest.fail("run these tests with `make test-real-llm`, which installs the model")
    return Path(named)


@contextmanager
def serving_model(python: Path) -> Iterator[str]:
    """Serve the model on a free port; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command: list[str | Path] = [
        python,
        HERE / "serve_model.py",
        str(port),
        HERE / "chat_template.jinja",
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith(b"READY"):
            assert line, "the model's server has ended"
        yield f"http://127.0.0.1:{port}"
        process.stdin.close()


@pytest.fixture(scope="session")
def model(model_python: Path) -> Iterator[str]:
    """The model's address."""
    with serving_model(model_python) as address:
        yield address


@pytest.fixture
async def service(model: str, tmp_path: Path) -> AsyncIterator[Service]:
    """The service, which reaches the model over each wire that its server speaks."""
    providers = tmp_path / "milepost.toml"
    providers.write_text(
        "\n".join(
            f'[providers.{name}]\nwire = "{wire}"\nbase_url = "{model}{path}"\nfree = true\n'
            for name, wire, path in (
                ("chat", "openai", "/v1"),
                ("responses", "responses", "/v1"),
                ("messages", "anthropic", ""),
            )
        )
    )
    database = f"sqlite:///{tmp_path / 'milepost.db'}"
    async with serving(settings_for(database, providers=str(providers))) as running:
        yield running


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the service."""
    async with service.client() as client:
        yield client
