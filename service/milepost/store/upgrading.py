"""Taking the steps with Alembic, which takes a tenth of a second to import and is seldom needed."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from milepost.store.migrations import folder


def upgrade(connection: Connection) -> None:
    """Bring the database to the newest schema, each step in a transaction of its own."""
    config = configured()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def configured() -> Config:
    """Return what Alembic has to know."""
    config = Config()
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    return config
