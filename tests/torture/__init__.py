"""Kill loops over real processes: what was promised is looked for afterwards, run by run."""
