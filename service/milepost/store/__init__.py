"""The only SQL: tables, statements and the two databases that they run on."""
