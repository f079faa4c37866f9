"""Earlier versions: their databases, and their code."""

import subprocess
from pathlib import Path

from alembic import command
from sqlalchemy import create_engine

from milepost.store.address import Address, SqliteAddress
from milepost.store.upgrading import configured

ROOT = Path(__file__).parents[2]


def migrated_to(address: Address, schema: str) -> None:
    """Bring the database to this schema, which may be an old one."""
    if isinstance(address, SqliteAddress):
        address.path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(address.sqlalchemy_url)
    config = configured()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, schema)
        connection.commit()
    engine.dispose()


def commit_before(migration: str) -> str:
    """Return the last commit without this migration. Raises `LookupError` without the history."""
    path = f"migrations/versions/{migration}"
    added = _git("log", "--diff-filter=A", "--format=%H", "-1", "--", path).decode().strip()
    return f"{added}^" if added else "HEAD"


def unpacked(commit: str, folder: Path) -> dict[str, str]:
    """Unpack a commit's code; return what makes a process run it. Raises `LookupError`."""
    archive = _git("archive", commit, "service", "migrations")
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return {"PYTHONPATH": str(folder / "service")}


def _git(*arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise LookupError(f"git {arguments[0]} gave nothing: {error}") from error
    return done.stdout
