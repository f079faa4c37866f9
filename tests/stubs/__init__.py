"""Stand-ins for the vendors, on real sockets."""
