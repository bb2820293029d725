"""Every door to Kafka: settings, topics, producer, worker and feed."""
