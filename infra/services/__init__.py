"""Real services on loopback for work and tests: Kafka, Redis, S3."""
