"""Ports are free, and out of the way of outgoing connections."""

import socket
from pathlib import Path

from turnstate.infra.services.ports import HOST, any_taken, free_ports, is_free


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]

        assert not is_free(port)
        assert any_taken([port])
    assert is_free(port)


def test_ports_are_apart_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(20, beside=10_000)
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(outgoing.read_text().split()[0]) if outgoing.exists() else 32_768

    assert len(set(ports)) == 20
    assert lowest < 21_240 or all(port + 10_000 < lowest for port in ports)


def test_a_connection_that_lingers_does_not_hold_its_servers_port() -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((HOST, port)):
            accepted, _ = listener.accept()
            accepted.close()  # the server closes first: its end waits in TIME_WAIT

    assert is_free(port)
