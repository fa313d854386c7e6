"""Real bags of instances: read, checked against the theory, and planned for."""
