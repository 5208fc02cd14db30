"""Many replicas behind a router."""
