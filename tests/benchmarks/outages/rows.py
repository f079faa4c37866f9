"""What is broken, nearly in the order of docs/operations.md, on each kind of installation."""

from tests.benchmarks.outages import of_databases, of_neighbours, of_processes
from tests.benchmarks.outages.outage import Outage

ON_POSTGRES = (
    Outage("nothing at all", of_processes.nothing),
    Outage("a worker is killed", of_processes.worker_killed),
    Outage("a run kills its worker again and again", of_processes.killed_by_a_run, share=0.2),
    Outage("a worker stands still for 4 s, and comes back", of_processes.worker_frozen),
    Outage("a tool blocks a worker's event loop for 3 s", of_processes.loop_blocked),
    Outage("an API is killed", of_processes.api_killed),
    Outage("an API is told to stop", of_processes.api_drained),
    Outage("a worker is told to stop", of_processes.worker_drained),
    Outage("Postgres is restarted, immediately", of_databases.postgres_restarted),
    Outage("Postgres refuses connections for 2 s", of_databases.postgres_refused),
    Outage("Postgres has no connection left for 2 s", of_databases.postgres_full, share=0.5),
    Outage("Postgres answers late for 2 s", of_databases.postgres_late, share=0.5),
    Outage("nothing reaches Postgres for 2 s", of_databases.postgres_cut_off),
    Outage("nothing from one worker reaches Postgres for 4 s", of_databases.worker_cut_off),
    Outage("Redis is killed, and back after 2 s", of_databases.redis_killed),
    Outage("Redis is emptied", of_databases.redis_flushed),
    Outage("Redis is replaced by an empty one", of_databases.redis_replaced),
    Outage(
        "a worker is killed where the others' clocks are wrong by 10 min",
        of_processes.worker_killed,
        of_processes.wrong_clocks,
    ),
    Outage("the model is down for 2 s", of_neighbours.model_down),
    Outage("a webhook's receiver is down for 2 s", of_neighbours.receiver_down, share=0.5),
    Outage("the collector is down for 2 s", of_neighbours.collector_down, share=0.5),
    Outage("the database is restored from a copy", of_databases.restored, share=0.3),
    # Last: the circuit that it opens stays open for a while.
    Outage(
        "the model is down for 2 s, and another stands in",
        of_neighbours.model_down,
        of_neighbours.stood_in_for,
    ),
)
ON_SQLITE = (
    Outage("nothing at all, on SQLite", of_processes.nothing),
    Outage("there is no room for SQLite for 2 s", of_databases.sqlite_full),
    Outage("SQLite's process is killed, and started again", of_processes.all_killed),
)
ON_TEMPORAL = (
    Outage("nothing at all, with Temporal", of_processes.nothing, share=0.5),
    Outage("Temporal is killed, and back after 2 s", of_neighbours.temporal_down, share=0.5),
)
