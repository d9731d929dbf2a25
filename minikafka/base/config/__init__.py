"""The configuration of a broker, of a topic and of a cluster, from Kafka's keys."""

from minikafka.base.config.broker import BrokerConfig
from minikafka.base.config.topic import TopicConfig

__all__ = ["BrokerConfig", "TopicConfig"]
