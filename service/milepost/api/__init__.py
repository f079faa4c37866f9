"""What clients see: HTTP, one class a resource."""
