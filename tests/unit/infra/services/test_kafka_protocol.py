"""A broker's answer is read to the letter, and anything else is no answer."""

import socket
import struct
import threading

import pytest

from turnstate.infra.services.kafka_protocol import Metadata, metadata, read_metadata
from turnstate.infra.services.ports import HOST


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


ANSWER = (
    struct.pack(">iii", 1, 0, 2)
    + (struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">ih", 9092, -1))
    + (struct.pack(">i", 2) + text("other") + struct.pack(">i", 9093) + text("rack"))
    + (text("cluster-of-tests") + struct.pack(">ii", 1, 0))
)


def test_brokers_and_cluster_are_read() -> None:
    assert read_metadata(ANSWER) == Metadata(
        "cluster-of-tests", frozenset({("127.0.0.1", 9092), ("other", 9093)})
    )


@pytest.mark.parametrize("length", range(len(ANSWER) - 8))
def test_a_cut_answer_is_refused(length: int) -> None:
    with pytest.raises(struct.error):
        read_metadata(ANSWER[:length])


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"+PONG\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 20) + ANSWER[:20],
        struct.pack(">i", len(ANSWER)) + ANSWER.replace(b"other", b"\xff" * 5),
    ],
)
def test_who_speaks_otherwise_is_no_broker(said: bytes) -> None:
    with socket.create_server((HOST, 0)) as listener:
        answering = threading.Thread(target=answer_once, args=(listener, said))
        answering.start()

        assert metadata(listener.getsockname()[1]) is None
        answering.join()


def answer_once(listener: socket.socket, said: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1024)
        connection.sendall(said)


def test_nobody_is_no_broker() -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]

    assert metadata(port) is None
