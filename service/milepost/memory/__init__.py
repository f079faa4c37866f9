"""What is kept of conversations: what was said, and what is told of what fell out of sight."""
