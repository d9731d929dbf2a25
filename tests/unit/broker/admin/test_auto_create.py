"""Auto-creation of topics that a client requests in a Metadata request."""

from __future__ import annotations

import pytest
from support.brokers.cold import Cold, finished

from minikafka.base.errors import ErrorCode, KafkaError, NotConnected
from minikafka.broker.admin import auto_create
from minikafka.zookeeper.nodes import layout


async def test_repeated_auto_creation_sends_one_create_topics_call_to_the_controller() -> None:
    ruler = Cold()
    cold = Cold(broker_id=2, controller_id=1, config={"num.partitions": 3}, ensemble=ruler.ensemble)
    cold.calls.handler = ruler.admin.auto_create.handle_create_topics
    assert cold.admin.auto_create.start("t") == ErrorCode.LEADER_NOT_AVAILABLE
    assert cold.admin.auto_create.start("t") == ErrorCode.LEADER_NOT_AVAILABLE
    await ruler.until_waiting()
    ruler.lead_what_is_created()
    await cold.tasks.settle()
    assert cold.calls.calls == [("127.0.0.1", 9501, "create_topics")]
    assert len(ruler.metadata.topics["t"]) == 3


async def test_controller_creates_a_topic_at_the_second_attempt_when_the_first_failed() -> None:
    cold = Cold()
    cold.session.failures = [NotConnected()]
    cold.admin.auto_create.start("t")
    await cold.tasks.settle()
    assert layout.topic_path("t") not in cold.ensemble.nodes
    cold.admin.auto_create.start("t")
    await cold.until_waiting()
    cold.lead_what_is_created()
    await cold.tasks.settle()
    assert "t" in cold.metadata.topics


@pytest.mark.parametrize("controller_id", [1, 9])
async def test_controller_that_does_not_answer_is_logged_and_asked_at_the_next_request(
    controller_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Broker 1 refuses the connection, and broker 9 is not alive."""
    cold = Cold(broker_id=2, controller_id=controller_id)
    for attempt in (1, 2):
        assert cold.admin.auto_create.start("t") == ErrorCode.LEADER_NOT_AVAILABLE
        await cold.tasks.settle()
        assert caplog.text.count("topics ['t'] were not created") == attempt
    assert len(cold.calls.calls) == (2 if controller_id == 1 else 0)


async def test_auto_create_returns_an_error_for_topics_that_cannot_be_created() -> None:
    cold, counted = Cold(config={"default.replication.factor": 5}), list[int]()
    assert finished(cold.admin.auto_create.start_all(["a/b", "t"], counted.append)) == {
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "t": ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    assert cold.tasks.running == []
    assert counted == []


async def test_create_topics_call_with_an_invalid_topic_name_is_refused() -> None:
    with pytest.raises(KafkaError):
        await Cold().admin.auto_create.handle_create_topics({"topics": [["../x", 1, 1]]})


async def test_one_request_auto_creates_at_most_10000_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto_create, "PARTITIONS_MAX", 2)
    cold, counted = Cold(config={"num.partitions": 4}), list[int]()
    steps = cold.admin.auto_create.start_all(["t1", "t2", "t3"], counted.append)
    assert set(finished(steps).values()) == {ErrorCode.LEADER_NOT_AVAILABLE}
    await cold.until_waiting()
    cold.lead_what_is_created()
    await cold.tasks.settle()
    assert set(cold.metadata.topics) == {"t1", "t2"}
    assert counted == [4, 4]
