"""Tools of MCP servers. Only where a server is declared is the SDK imported."""
